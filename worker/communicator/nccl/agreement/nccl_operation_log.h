// Memory in which ranks post the operations that they have enqueued on their devices. Any rank may
// read it at any time.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_NCCL_OPERATION_LOG_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_NCCL_OPERATION_LOG_H_

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
#include "worker/communicator/nccl/agreement/operation_log_line.h"

namespace cohort::worker {

// Movable. Ranks of one host map the same bytes. One thread of a rank posts; any thread calls the
// other methods. No call waits for another.
class NcclOperationLog {
 public:
  static constexpr int kMaxRanks = 1024;
  // The number of last entries that are kept for each rank; a rank has fewer in flight.
  static constexpr int64_t kEntries = 2048;

  struct Entry {
    OperationLogLine line;
    uint64_t chain = 0;  // of this and all before
  };
  // The last operations that the device has begun and done, as far as its rank has seen.
  struct Progress {
    int64_t started = 0;
    int64_t finished = 0;
  };
  // Two ranks that posted different operations.
  struct Difference {
    int64_t sequence = 0;
    bool is_first = true;  // otherwise they may have differed before, in entries that are gone
    int rank = 0;
    OperationLogLine mine;
    OperationLogLine theirs;
    // The wrong arguments, where one of the two is a refusal.
    std::string my_refusal;
    std::string their_refusal;
  };

  // Errors: INVALID_ARGUMENT (not 1..kMaxRanks), RESOURCE_EXHAUSTED.
  static absl::StatusOr<NcclOperationLog> Create(int ranks);
  // Maps an operation log that another process created for the same number of ranks. Takes
  // ownership of `fd`. Errors: INVALID_ARGUMENT.
  static absl::StatusOr<NcclOperationLog> Attach(int fd, int ranks);
  // An operation log over memory that all ranks map and that began as zeros: the first rank makes
  // it an operation log. Errors: INVALID_ARGUMENT.
  static absl::StatusOr<NcclOperationLog> Over(shm::Segment segment, int ranks);
  // The size of an operation log.
  static size_t Bytes(int ranks);

  int ranks() const { return ranks_; }
  // To be passed to another process; stays this object's.
  int fd() const { return segment_.fd(); }

  // Posts the next entry of `rank`.
  void Post(int rank, const Entry& entry) const;
  // Posts the next entry of `rank`, a refusal because of `why`, of which the text of the last one
  // is kept.
  void PostRefusal(int rank, const Entry& entry, absl::string_view why) const;
  // How many entries `rank` has posted: the number of the last one, counted from 1.
  int64_t posted(int rank) const;
  // Absent: not posted yet, or no longer kept.
  std::optional<Entry> Read(int rank, int64_t sequence) const;

  // Never goes back.
  void Advance(int rank, const Progress& progress) const;
  Progress progress(int rank) const;

  // Returns the first rank whose posted operations differ from those of `rank`, as far as both have
  // come.
  std::optional<Difference> FindDifference(int rank) const;

  // Sets why the ranks cannot go on: the first status stays. ABORTED or INVALID_ARGUMENT.
  void Fail(const absl::Status& status) const;
  // The status that was set by Fail, or OK.
  absl::Status error() const;

 private:
  struct Header;
  struct RankLog;

  NcclOperationLog(shm::Segment segment, int ranks) : segment_(std::move(segment)), ranks_(ranks) {}
  // The text of a refusal, or "" if it is no longer kept.
  std::string RefusalOf(int rank, int64_t sequence) const;
  Header& header() const;
  RankLog& rank_log(int rank) const;

  shm::Segment segment_;
  int ranks_ = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_NCCL_OPERATION_LOG_H_
