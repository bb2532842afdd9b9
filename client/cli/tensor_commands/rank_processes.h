// This program once more for each rank, on this machine.
#ifndef COHORT_CLIENT_CLI_TENSOR_COMMANDS_RANK_PROCESSES_H_
#define COHORT_CLIENT_CLI_TENSOR_COMMANDS_RANK_PROCESSES_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"

namespace cohort::cli {

// How the rank ended that is to blame.
struct RankFailure {
  int rank = 0;
  pid_t pid = 0;
  int signal = 0;     // that killed it; 0: it exited
  int exit_code = 0;  // if it exited
  std::string words;  // the last line of its standard error; unknown for rank 0
};

// Rank 0 has this process' standard output and error; the others' output is dropped, and their
// errors are kept until they end. When one fails, the others have five seconds to end by
// themselves, and are then terminated, and then killed. None outlives this object or, however it
// ends, this process.
//
// Confined to one thread, but for Stop.
class RankProcesses {
 public:
  // `arguments` are by rank, without the program's name. To be called by the process' first thread:
  // when that ends, so do they. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  static absl::StatusOr<std::unique_ptr<RankProcesses>> Start(
      const std::vector<std::vector<std::string>>& arguments);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Blocks until all have ended. Absent: all ended with 0. A killed rank comes first, then a rank
  // that exited with an error of its own. A rank that only reports the end of its group (exit
  // status 6) comes last.
  std::optional<RankFailure> Wait();

  // Any thread may call it: ends them, and blocks until they are gone, about a second at most.
  void Stop();

 private:
  struct Rank {
    int rank = 0;
    pid_t pid = 0;
    UniqueFd process;  // readable when it has ended
    UniqueFd errors;   // an unnamed file
    bool running = true;
    bool killed_by_us = false;
    int status = 0;
  };

  explicit RankProcesses(UniqueFd stop) : stop_(std::move(stop)) {}
  absl::Status StartOne(int rank, const std::vector<std::string>& arguments);
  // Until one ends or the time is over; whether Stop was called.
  bool Poll(absl::Duration timeout);
  // Those that have ended.
  void Reap();
  void Signal(int signal);
  bool AnyRunning() const;
  // Ends all that run: SIGTERM, and after `grace_period` SIGKILL.
  void End(absl::Duration grace_period);
  std::optional<RankFailure> Culprit() const;

  UniqueFd stop_;  // an eventfd: readable once Stop was called
  std::vector<Rank> ranks_;
  Mutex mutex_;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TENSOR_COMMANDS_RANK_PROCESSES_H_
