// Messages between two ranks that share memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_MAILBOX_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_MAILBOX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/shm/segment.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/host/reduce/store_mode_choice.h"
#include "worker/communicator/host/shared/futex_waiter.h"
#include "worker/communicator/host/shared/host_shared_memory.h"
#include "worker/communicator/no_message_error.h"

namespace cohort::worker {

// The segments from which the ranks allocate tensors, by rank, as mapped here; null where a rank
// has none.
using RankHeaps = std::vector<std::shared_ptr<const shm::Segment>>;

// One rank's mailbox for the messages on one channel. A message travels in fragments through the
// channel from its sender to its receiver. A fragment holds its data in its line or in a buffer of
// the channel. A sender does not wait if the channel can hold the message. A larger message that
// lies in the sender's heap is one fragment that names its heap offset; the receiver copies it from
// there.
class HostMailbox {
 public:
  // The arguments outlive the mailbox.
  HostMailbox(const HostSharedMemory& space, const RankHeaps& heaps, const FutexWaiter& waiter,
              int rank, MessageChannel channel = MessageChannel::kData);

  // Like Communicator::Exchange, for transfers that CheckTransfers accepts.
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline);
  // Like Communicator::AwaitMessage.
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline);
  // Waits until the peers have taken all that was sent, until they cannot any more, or until
  // `deadline`.
  void Drain(Instant deadline) const;

 private:
  static constexpr int kNone = -1;

  // The state of one transfer of an exchange.
  struct Progress {
    bool begun = false;
    bool done = false;
    uint64_t first = 0;  // the number of the message's first fragment
    int64_t bytes = 0;   // of the message that were sent or received
    bool mismatched = false;
    int64_t whole = 0;  // bytes of the mismatched message, as its sender stated them
    int next = kNone;   // the transfer after it, of the same peer and direction
  };
  // The transfers of one peer and direction, in the exchange of that number.
  struct Queue {
    uint64_t exchange = 0;
    int last = kNone;
  };
  // Counts of the fragments between this rank and a peer.
  struct Peer {
    uint64_t sent = 0;
    uint64_t seen_taken = 0;  // of those sent, at this rank's last look
    uint64_t taken = 0;
    Queue sends;
    Queue receives;
    bool owed = false;  // the peer is to be woken
  };

  Channel& ChannelTo(int peer) const { return space_.channel(rank_, peer, channel_); }
  Channel& ChannelFrom(int peer) const { return space_.channel(peer, rank_, channel_); }
  // Whether a message from `peer` has begun to arrive and was not received.
  bool Begun(int peer) const;
  // The announcement of such a message. An impossible one poisons the communicator.
  absl::StatusOr<MessageInfo> InfoOf(int peer);
  // Chains the transfers of each peer and direction: they are done one after the other.
  void LineUp(absl::Span<const Transfer> transfers);
  // Moves as much as it can. Returns whether anything moved.
  bool Pass(absl::Span<const Transfer> transfers);
  // Records that something moved for the peer, which may sleep.
  void Owe(int peer);
  // Wakes the peers that Owe recorded.
  void WakePeers();
  // Where in this rank's heap the message lies; -1: elsewhere.
  int64_t OffsetInHeap(const Transfer& transfer) const;
  bool Send(const Transfer& transfer, Progress& progress);
  bool Receive(const Transfer& transfer, Progress& progress);
  // Copies a fragment's data to the transfer's memory. Returns false, and poisons the space, if the
  // fragment's offset or size is impossible.
  bool Take(const Transfer& transfer, const FragmentLine& line, const char* buffer,
            Progress& progress);
  absl::Status GiveUp(absl::Span<const Transfer> transfers);
  // Drops the transfers with ranks that have left; all of them, or only those that send. Returns
  // the cause if it dropped one.
  absl::Status DropLeft(absl::Span<const Transfer> transfers, bool only_sends);
  RankSet PeersOfTheRest(absl::Span<const Transfer> transfers) const;
  void Poison(int culprit, absl::string_view what);

  const HostSharedMemory& space_;
  const RankHeaps& heaps_;
  const FutexWaiter& waiter_;
  const int rank_;
  const MessageChannel channel_;
  std::vector<Peer> peers_;
  std::vector<Progress> progress_;  // of the exchange at work
  uint64_t exchange_ = 0;
  std::vector<int> current_;  // the current transfer of each peer and direction
  std::vector<int> owed_;   // peers
  std::vector<std::string> mismatches_;
  StoreModeChoice store_choice_;  // for pieces
  NoMessageError no_message_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_MAILBOX_H_
