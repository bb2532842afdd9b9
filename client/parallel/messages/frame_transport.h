// Frames between this rank and the others, whatever memory the group moves.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_TRANSPORT_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_TRANSPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/collective/message_info.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"
#include "client/parallel/messages/message_frame.h"

namespace cohort::parallel {

// Frames travel in host memory by Exchange; in groups whose placement is device, as objects.
class Wire {
 public:
  // The units of frames that a rank sends to one peer between two looks at the frames of all peers.
  // Shared memory and sockets have room for twice as many. So if ranks in a chain wait for room,
  // each has looked after the next one did: the chain is not a circle.
  static constexpr int kRoom = 4;

  struct Came {
    int peer = -1;
    Frame frame;  // with its body, unless that comes later
  };

  explicit Wire(client::Group& group);

  // Begins a new generation: no frame is under way.
  void Begin();

  // Frames go by Exchange, which mixes them with tensors of the host.
  bool by_exchange() const { return by_exchange_; }
  // Whether elements go behind a frame: in shared memory, where one piece for all gains nothing.
  bool has_behind() const { return by_exchange_ && by_memory_; }
  // The most bytes of a frame, with its header, for which the sender does not wait.
  int64_t eager_limit() const { return eager_limit_; }
  // The units of kRoom that the frame takes, with its header and the elements behind it.
  int RoomFor(const Frame& frame) const;
  // A frame went or came in part: the bytes after it cannot be read.
  bool torn() const { return torn_; }

  // Sends one frame to each peer. Does not wait for the receivers while few frames are under way to
  // them.
  absl::Status Put(absl::Span<const int> peers, absl::Span<Frame> frames,
                   const client::CallOptions& options);
  // Receives the elements behind a frame into contiguous tensors.
  absl::Status TakeBehind(int peer, absl::Span<const Tensor* const> tensors,
                          const client::CallOptions& options);
  // Sends kGo and the granted part of the same message in one call.
  absl::Status Go(int peer, Frame frame, absl::Span<const Tensor* const> tensors,
                  const client::CallOptions& options);
  // Receives the part that follows a kGo.
  absl::Status TakeTensors(int peer, absl::Span<const Tensor* const> tensors,
                           const client::CallOptions& options);
  // Returns the next frame of one of `peers`, whichever has sent one. Errors: INVALID_ARGUMENT (the
  // bytes are not a frame, or are longer than an eager frame; an object is longer than
  // `max_bytes`). The error names the peer.
  absl::StatusOr<Came> Get(absl::Span<const int> peers, int64_t max_bytes,
                           const client::CallOptions& options);
  // Returns the first piece of a frame that has arrived from one of `peers`, or nullopt. Always
  // nullopt where the coordinator keeps the frames, because no sender waits for room there.
  absl::StatusOr<std::optional<MessageInfo>> Look(absl::Span<const int> peers);
  // Returns the frame whose first piece Look found. Errors: as Get.
  absl::StatusOr<Came> GetFound(const MessageInfo& first, const client::CallOptions& options);

 private:
  // Moves the tensors; those of the host in one call with `on_host`.
  absl::Status Move(bool sends, int peer, absl::Span<const Tensor* const> tensors,
                    std::vector<client::TensorTransfer> on_host,
                    const client::CallDeadline& deadline);
  absl::StatusOr<Came> Receive(const MessageInfo& first, const client::CallDeadline& deadline);
  absl::StatusOr<Came> GetObject(absl::Span<const int> peers, int64_t max_bytes,
                                 const client::CallOptions& options);

  client::Group& group_;
  const bool by_exchange_;
  bool by_memory_ = false;
  int64_t eager_limit_ = kFrameBytes;
  bool torn_ = false;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_TRANSPORT_H_
