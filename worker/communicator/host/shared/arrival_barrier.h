// A barrier of ranks that share memory. It compares their calls and names the ranks that do not
// come.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_SHARED_ARRIVAL_BARRIER_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_SHARED_ARRIVAL_BARRIER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/collective/collective.h"
#include "base/rank_set.h"
#include "worker/communicator/host/shared/futex_waiter.h"
#include "worker/communicator/host/shared/host_shared_memory.h"

namespace cohort::worker {

// One rank's side. A rank that arrives at sequence number t no longer reads data of earlier
// numbers, and has compared the calls of all ranks up to number t - kMaxLead. So a line may be
// rewritten 2 * kMaxLead numbers later, and nothing is ever reset.
class ArrivalBarrier {
 public:
  // The arguments outlive the barrier. `names`: the ranks' numbers in errors, by rank.
  ArrivalBarrier(const HostSharedMemory& space, const FutexWaiter& waiter,
                 const std::vector<int>& names, int rank);

  // The data that this rank brings to its next barrier: ArrivalLine::kDataBytes bytes.
  char* own_data() const { return space_.line(rank_, sequence_ + 1).data; }
  // The data that a rank brought to the last barrier. It stays until this rank comes to the next
  // one.
  const char* data(int rank) const { return space_.line(rank, sequence_).data; }

  // Waits until all ranks have arrived at this sequence number. `stage` distinguishes the barriers
  // of one operation. Writes before the barrier are visible to all ranks after it.
  //
  // Errors: INVALID_ARGUMENT (the ranks called different collectives: with the mark of mismatch.h
  // all ranks get it, without it some have returned from Follow; or all ranks get
  // EarlierMismatchError of a Follow), DEADLINE_EXCEEDED (names the ranks that did not come, and
  // poisons the space), ABORTED (the cause of the poison, or of a rank's leaving).
  absl::Status ArriveAndWait(const FlatCall& call, int stage, Instant deadline);

  // ABORTED if a rank left before it arrived at the next sequence number. To be called before this
  // rank writes any data for that number: it must not rewrite buffers that others may still read.
  absl::Status CheckLeft() const;

  // Waits until `root` has arrived at this sequence number; the root does not wait. A rank that is
  // kMaxLead numbers ahead first waits for the ranks behind it. The calls of the ranks that are
  // behind are compared later. If one differs, all ranks get EarlierMismatchError from the same
  // call: the next one that waits for all ranks, or the Follow that is kMaxLead numbers later,
  // which waits for all ranks then.
  //
  // Errors: as ArriveAndWait. A rank whose call differs from the root's waits for all ranks.
  absl::Status Follow(const FlatCall& call, int root, Instant deadline);

  // Waits until all ranks have arrived at this rank's last sequence number, until they cannot any
  // more, or until `deadline`.
  void Drain(Instant deadline) const;

  // The number of barriers that this rank has arrived at.
  uint64_t sequence() const { return sequence_; }

 private:
  // How many barriers a rank that follows may be ahead of others.
  static constexpr uint64_t kMaxLead = HostSharedMemory::kLines / 2;
  static constexpr int kAllEqual = -1;

  bool Here(int rank, uint64_t sequence) const {
    return space_.line(rank, sequence).sequence.load(std::memory_order_acquire) == sequence;
  }
  bool AllHere(uint64_t sequence) const;
  RankSet Missing(uint64_t sequence) const;

  void Arrive(const FlatCall& call, int stage);
  // Compares the calls of all ranks at the sequence numbers that it has not compared yet, up to
  // `last`, and waits for the ranks. Goes on past `last` while all ranks have come.
  absl::Status CatchUp(uint64_t last, const FlatCall& call, Instant deadline);
  // Compares the calls at this sequence number, at which all ranks have arrived, and those before.
  absl::Status Compare(const FlatCall& call, Instant deadline);
  absl::Status AwaitAll(uint64_t sequence, const FlatCall& call, Instant deadline) const;
  // Returns the first rank whose call at `sequence` differs from rank 0's, or kAllEqual. All ranks
  // have arrived at `sequence`.
  int FirstDifferent(uint64_t sequence) const;
  // Whether a rank returned from Follow without an error, although the ranks' calls differ. All
  // ranks have arrived at `sequence`.
  bool SomebodyWentOn(uint64_t sequence) const;
  // Keeps the mismatch at `sequence` for the call in which all ranks get it.
  void Defer(uint64_t sequence, int different);
  std::string Differ(uint64_t sequence, int one, int other) const;
  absl::Status GiveUp(const RankSet& missing, const FlatCall& call) const;

  const HostSharedMemory& space_;
  const FutexWaiter& waiter_;
  const std::vector<int>& names_;
  const int rank_;
  uint64_t sequence_ = 0;
  uint64_t compared_ = 0;  // up to this sequence number
  // The mismatch at deferred_at_, which all ranks get from a later call. The first of several.
  absl::Status deferred_error_;
  uint64_t deferred_at_ = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_SHARED_ARRIVAL_BARRIER_H_
