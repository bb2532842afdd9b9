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
#include "worker/communicator/host/host_space.h"
#include "worker/communicator/host/store_choice.h"
#include "worker/communicator/host/waiter.h"
#include "worker/communicator/no_message.h"

namespace cohort::worker {

// The segments from which the ranks allocate tensors, by rank, as mapped here; null where a rank
// has none.
using RankHeaps = std::vector<std::shared_ptr<const shm::Segment>>;

// One rank's, of messages or of notes. A message goes in fragments through the channel of its two
// ranks: within a fragment's line, through the channel's buffers, or, when it lies in the sender's
// heap, by its place there, from where the receiver copies it. Senders of messages that the channel
// can hold do not wait.
class HostMailbox {
 public:
  // All outlive it.
  HostMailbox(const HostSpace& space, const RankHeaps& heaps, const Waiter& waiter, int rank,
              Mail mail = Mail::kMessages);

  // As Communicator::Exchange, of transfers that make sense.
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline);
  // As Communicator::HasMessage.
  absl::StatusOr<bool> HasMessage(int peer) const;
  // As Communicator::AwaitMessage.
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline);
  // Returns when all that was sent has been taken, or never will be, and at `deadline`.
  void Drain(Instant deadline) const;

 private:
  static constexpr int kNone = -1;

  // Of one transfer of an exchange.
  struct Progress {
    bool begun = false;
    bool done = false;
    uint64_t first = 0;  // fragment of the message
    int64_t bytes = 0;   // that have gone
    bool refused = false;
    int64_t whole = 0;  // bytes of the refused message, as its sender named them
    int next = kNone;   // which is done after it: of the same peer and direction
  };
  // Transfers of one direction, in the exchange of that number.
  struct Lane {
    uint64_t exchange = 0;
    int last = kNone;
  };
  // Fragments that have gone between this rank and a peer.
  struct Peer {
    uint64_t sent = 0;
    uint64_t seen_taken = 0;  // of those sent, when this rank looked last
    uint64_t taken = 0;
    Lane sends;
    Lane receives;
    bool owed = false;  // to be woken
  };

  Channel& ChannelTo(int peer) const { return space_.channel(rank_, peer, mail_); }
  Channel& ChannelFrom(int peer) const { return space_.channel(peer, rank_, mail_); }
  // Whether a message of `peer` that was not received has begun to come.
  bool Begun(int peer) const;
  // Those of one peer and direction are done one after the other.
  void LineUp(absl::Span<const Transfer> transfers);
  // Whether anything moved.
  bool Pass(absl::Span<const Transfer> transfers);
  // Something moved for the peer, who may sleep.
  void Owe(int peer);
  // Wakes those to whom that is owed.
  void Tell();
  // Where in this rank's heap the message lies; -1: elsewhere.
  int64_t PlaceInHeap(const Transfer& transfer) const;
  bool Send(const Transfer& transfer, Progress& progress);
  bool Receive(const Transfer& transfer, Progress& progress);
  // To memory of the transfer, from a fragment. False: it lies where nothing can.
  bool Take(const Transfer& transfer, const FragmentLine& line, const char* buffer,
            Progress& progress);
  absl::Status GiveUp(absl::Span<const Transfer> transfers);
  RankSet PeersOfTheRest(absl::Span<const Transfer> transfers) const;
  void Poison(int culprit, absl::string_view what);

  const HostSpace& space_;
  const RankHeaps& heaps_;
  const Waiter& waiter_;
  const int rank_;
  const Mail mail_;
  std::vector<Peer> peers_;
  std::vector<Progress> progress_;  // of the exchange at work
  uint64_t exchange_ = 0;
  std::vector<int> turns_;  // of each peer and direction, whose turn it is
  std::vector<int> owed_;   // peers
  std::vector<std::string> refusals_;
  StoreChoice store_choice_;  // of pieces
  NoMessage no_message_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_MAILBOX_H_
