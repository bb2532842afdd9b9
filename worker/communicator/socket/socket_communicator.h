// Ranks on different hosts, over TCP.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_SOCKET_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_SOCKET_COMMUNICATOR_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/no_message_error.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/mesh/rank_listener.h"
#include "worker/communicator/socket/transfer/collective_part.h"
#include "worker/communicator/socket/transfer/link.h"
#include "worker/communicator/socket/transfer/socket_mailbox.h"
#include "worker/communicator/socket/transfer/traffic.h"
#include "worker/communicator/wait_log.h"

namespace cohort::worker {

// The same on all ranks, but for `spin`.
struct SocketOptions {
  // Connections between two ranks for large data; one more carries frames.
  int streams = 2;
  // A rank that acknowledges no data for this long is gone.
  absl::Duration link_timeout = absl::Seconds(15);
  // How long a call spins before it sleeps. Absent: a while, unless there are more ranks than
  // processors on this machine.
  std::optional<absl::Duration> spin;
  // The ranks' numbers in errors, by rank, if they are part of a larger group; otherwise empty.
  std::vector<int> names;
  int interrupt_fd = -1;  // see MeshOptions
  WaitLog* waits = nullptr;  // gets the ranks for which it sleeps; outlives it; may be null
};

// The calling thread does all the work; the communicator has no threads. In every collective, each
// rank first sends each other rank a frame that names its call. Small parts travel in these frames,
// and then the collective is done. Large parts follow once all ranks have agreed.
class SocketCommunicator final : public Communicator, private Link::Handler {
 public:
  // Connects this rank with the others, whose listeners are at `addresses`, by rank. `secret` is
  // that of the group and generation. Errors as ConnectMesh.
  static absl::StatusOr<std::unique_ptr<SocketCommunicator>> Connect(
      int rank, const Listener& listener, const std::vector<std::string>& addresses,
      const Id128& secret, const SocketOptions& options, Instant deadline);
  // The same in two steps, which may be those of two processes. Errors of Make: RESOURCE_EXHAUSTED.
  static absl::StatusOr<Mesh> ConnectLinks(int rank, const Listener& listener,
                                           const std::vector<std::string>& addresses,
                                           const Id128& secret, const SocketOptions& options,
                                           Instant deadline);
  static absl::StatusOr<std::unique_ptr<SocketCommunicator>> Make(int rank, Mesh mesh,
                                                                  const SocketOptions& options);
  // The other ranks learn that this rank left, not that it died.
  ~SocketCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  absl::Status Run(const FlatCall& flat, const void* input, void* output,
                   Instant deadline) override;
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel = MessageChannel::kData) override;
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline,
                                           MessageChannel channel = MessageChannel::kData) override;
  void Drain(Instant) override {}
  void Abort(absl::string_view cause) override;
  // Its goodbye follows all that it sent in its connection, where a later call that sends looks.
  void NoteLeft(int /*rank*/, absl::string_view /*cause*/) override { look_for_goodbyes_ = true; }

 private:
  // A rank has come to an operation.
  struct Arrival {
    uint64_t sequence = 0;
    CollectiveKey key;
    uint32_t payload_bytes = 0;
    std::vector<char> payload;
  };
  // Another rank. It may be ahead by one operation at most.
  struct Peer {
    Peer(int rank, RankSocket socket, Traffic* traffic, int64_t window)
        : link(rank, std::move(socket)),
          mailbox(&link, traffic, window),
          control(Mailbox::ForControl(&link, traffic)) {}
    Mailbox& MailboxOf(MessageChannel channel) {
      return channel == MessageChannel::kData ? mailbox : control;
    }
    Link link;
    Mailbox mailbox;
    Mailbox control;
    Arrival arrivals[2];
    char abort_text[kMaxAbortBytes];
  };

  SocketCommunicator(int rank, std::vector<RankSocket> links,
                     std::vector<std::vector<RankSocket>> streams, absl::Duration spin);

  // Calls `body` for each peer, from the next rank on.
  template <typename Body>
  void ForEachPeer(const Body& body) {
    for (int step = 1; step < size(); ++step) {
      body(*peers_[static_cast<size_t>((rank_ + step) % size())]);
    }
  }
  // Whether a message has arrived, or begun to, that was not received.
  absl::StatusOr<bool> HasArrival(int rank, MessageChannel channel);
  // Ranks exchange their calls and small parts. All ranks find out whether the calls differ.
  absl::Status ArriveAndWait(const Call& call, bool direct, Instant deadline);
  absl::Status Compare(const CollectiveKey& own) const;
  absl::Status CheckParts(const Call& call, bool direct);
  // Computes the result from the small parts that arrived.
  void Finish(const Call& call);
  Arrival& arrival(int rank, uint64_t sequence) const {
    return peers_[static_cast<size_t>(rank)]->arrivals[sequence % 2];
  }
  bool Here(int rank) const { return arrival(rank, sequence_).sequence == sequence_; }
  RankSet Missing() const;
  // The ranks whose next frames the call at work needs, as errors name them.
  RankSet Awaited();
  int Name(int rank) const { return names_.empty() ? rank : names_[static_cast<size_t>(rank)]; }
  std::string Names(const RankSet& ranks) const;

  // Link::Handler
  absl::Status OnHeader(Link& link, const FrameHeader& header, char** sink) override;
  absl::Status OnFrame(Link& link, const FrameHeader& header) override;

  // Reads, writes and reduces until `finished` and all is sent. After DEADLINE_EXCEEDED the
  // communicator stays usable.
  absl::Status DriveUntil(absl::FunctionRef<bool()> finished, Instant deadline);
  // Like DriveUntil, but a deadline ends the communicator; `late` says which ranks are late.
  absl::Status Drive(absl::FunctionRef<bool()> finished, absl::FunctionRef<std::string()> late,
                     Instant deadline);
  absl::Status GiveUp(const std::string& text);
  // Flushes all links. Returns whether all is sent.
  bool Flushed();
  // Moves as much as it can. Returns whether something was moved.
  bool Advance();
  bool Read(Peer& peer);
  // Sleeps until a socket can be read or written, and reads the frames that arrived.
  void Sleep(Instant deadline);
  // Whether the call in flight needs a frame of that rank.
  bool Waits(const Peer& peer) const;
  // A rank that has left ends what needs it; a lost one ends the communicator.
  void CheckEnd(Peer& peer);
  absl::Status CauseOfLeaving(const Peer& peer) const;
  void Lost(int rank, const std::string& reason);

  void OnAbort(int rank, const std::string& cause);
  // The first cause stays. Returns whether it is this one.
  bool Poison(absl::string_view cause);
  absl::Status Poisoned();

  const int rank_;
  std::vector<int> names_;
  WaitLog* waits_ = nullptr;
  const absl::Duration spin_;
  Traffic traffic_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; none for this one
  const UniqueFd event_;                      // readable once there is a cause
  int64_t direct_bytes_ = 0;                  // parts up to here are small

  uint64_t sequence_ = 0;  // of operations
  bool in_barrier_ = false;
  absl::Status left_;  // the call at work needs a rank that has left
  absl::Span<const int> watched_;  // peers whose messages are awaited
  NoMessageError no_message_;
  int missing_ = 0;  // ranks that have not come to this sequence
  std::vector<char> landing_;
  std::vector<char> scratch_;
  std::vector<pollfd> polled_;
  std::vector<Peer*> polled_peers_;

  std::atomic<bool> look_for_goodbyes_{false};
  std::atomic<bool> poisoned_{false};
  Mutex mutex_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_SOCKET_COMMUNICATOR_H_
