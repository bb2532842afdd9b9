// Frames between this rank and others: how they travel, whatever the group moves.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_WIRE_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_WIRE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "client/collective/group.h"
#include "client/parallel/messages/frame.h"

namespace cohort::parallel {

// In memory of the host by Exchange; in groups whose placement is device, as objects.
class Wire {
 public:
  // Of frames under way to a peer between two looks for what all have sent: half of what memory that
  // ranks share, or sockets, have room for. So of ranks that wait for room, each for the next one,
  // each has looked after the next one did: they are no circle.
  static constexpr int kRoom = 4;

  struct Came {
    int peer = -1;
    Frame frame;  // with its body, unless that comes later
  };

  explicit Wire(client::Group& group);

  // Of a new generation: nothing is under way.
  void Begin();

  // Frames go by Exchange, which mixes them with tensors of the host.
  bool by_exchange() const { return by_exchange_; }
  // Whether elements go behind a frame: by memory, where nothing is gained by one piece for all.
  bool has_behind() const { return by_exchange_ && by_memory_; }
  // How many bytes a frame may have, with its header, so that its sender does not wait.
  int64_t most_ahead() const { return most_ahead_; }
  // What the next frame to `peer` takes of kRoom, with its header and what is behind it.
  int RoomFor(int peer, const Frame& frame) const;
  // Of a frame a part has gone or come, and not all of it: what comes next nobody can read.
  bool torn() const { return torn_; }

  // One frame each. Does not wait for who takes them, as long as few are under way to a peer.
  absl::Status Put(absl::Span<const int> peers, absl::Span<Frame> frames,
                   const client::CallOptions& options);
  // What follows a frame that has elements behind it, contiguous.
  absl::Status TakeBehind(int peer, absl::Span<const Tensor* const> tensors,
                          const client::CallOptions& options);
  // kGo, and what follows of the same message: one call.
  absl::Status Go(int peer, Frame frame, absl::Span<const Tensor* const> tensors,
                  const client::CallOptions& options);
  // What follows a kGo.
  absl::Status TakeTensors(int peer, absl::Span<const Tensor* const> tensors,
                           const client::CallOptions& options);
  // The next frame of whichever of `peers` has sent one first. Errors: INVALID_ARGUMENT: it is
  // none, or longer than goes ahead (where they are objects: than `max_bytes`): names the peer.
  absl::StatusOr<Came> Get(absl::Span<const int> peers, int64_t max_bytes,
                           const client::CallOptions& options);
  // Whether a frame of `peer` is there. Always false where the coordinator keeps them, because no
  // sender waits for room there.
  absl::StatusOr<bool> Look(int peer);
  // The same of several: one whose frame is there; -1: none.
  absl::StatusOr<int> LookAt(absl::Span<const int> peers);

 private:
  struct Peer {
    // First pieces of the next frames.
    int64_t piece_to = kFrameBytes;
    int64_t piece_from = kFrameBytes;
  };

  class Left;

  // The tensors, those of the host in one call with what is in `on_host`.
  absl::Status Move(bool sends, int peer, absl::Span<const Tensor* const> tensors,
                    std::vector<client::TensorTransfer> on_host, Left& left);
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  // The frame in the pieces that travel; its bytes are kept in `encoded`.
  void AddPieces(int to, Frame frame, std::string* encoded,
                 std::vector<client::TensorTransfer>* transfers);
  // What of a frame of rank `from` comes after its first `at` bytes.
  absl::Status GetRest(int from, size_t at, std::string* bytes, const client::CallOptions& options);
  absl::StatusOr<Came> GetObject(absl::Span<const int> peers, int64_t max_bytes,
                                 const client::CallOptions& options);

  client::Group& group_;
  const bool by_exchange_;
  bool by_memory_ = false;
  int64_t most_ahead_ = kFrameBytes;
  std::vector<Peer> peers_;  // by rank
  bool torn_ = false;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_WIRE_H_
