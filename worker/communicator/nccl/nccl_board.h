// Memory in which ranks say what they have enqueued on their devices, for all to read at any time.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_BOARD_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_BOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/shm/segment.h"
#include "worker/communicator/nccl/operation_line.h"

namespace cohort::worker {

// Movable. Ranks of one host map the same bytes. One thread of a rank posts; everything else is for
// any thread. Nobody waits for anybody.
class NcclBoard {
 public:
  static constexpr int kMaxRanks = 1024;
  // Of each rank, the last ones; more than it has in flight.
  static constexpr int64_t kEntries = 2048;

  struct Entry {
    OperationLine line;
    uint64_t chain = 0;  // of this and all before
  };
  // The last operations that the device has begun and done, as far as its rank has seen.
  struct Progress {
    int64_t started = 0;
    int64_t finished = 0;
  };
  // Two ranks that posted different things.
  struct Difference {
    int64_t sequence = 0;
    bool is_first = true;  // else they may have differed before, which nobody has kept
    int rank = 0;
    OperationLine mine;
    OperationLine theirs;
  };

  // Errors: INVALID_ARGUMENT (not 1..kMaxRanks), RESOURCE_EXHAUSTED.
  static absl::StatusOr<NcclBoard> Create(int ranks);
  // Takes `fd`, of a board that another process made for as many ranks. Errors: INVALID_ARGUMENT.
  static absl::StatusOr<NcclBoard> Attach(int fd, int ranks);
  // What all of the ranks map, and began as zeros: the first to come makes a board of it. Errors:
  // INVALID_ARGUMENT.
  static absl::StatusOr<NcclBoard> Over(shm::Segment segment, int ranks);
  // That one takes.
  static size_t Bytes(int ranks);

  int ranks() const { return ranks_; }
  // To be passed to another process; stays this object's.
  int fd() const { return segment_.fd(); }

  // As the next of `rank`.
  void Post(int rank, const Entry& entry) const;
  // How many `rank` has posted: the number of the last, counted from 1.
  int64_t posted(int rank) const;
  // Nothing: not yet posted, or not kept.
  std::optional<Entry> Read(int rank, int64_t sequence) const;

  // Never goes back.
  void Advance(int rank, const Progress& progress) const;
  Progress progress(int rank) const;

  // Whether what `rank` and others have posted is the same, as far as both have come.
  std::optional<Difference> FindDifference(int rank) const;

  // Why the ranks cannot go on: the first that is said stays. ABORTED or INVALID_ARGUMENT.
  void Condemn(const absl::Status& status) const;
  // That, or OK.
  absl::Status verdict() const;

 private:
  struct Header;
  struct Seat;

  NcclBoard(shm::Segment segment, int ranks) : segment_(std::move(segment)), ranks_(ranks) {}
  Header& header() const;
  Seat& seat(int rank) const;

  shm::Segment segment_;
  int ranks_ = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_BOARD_H_
