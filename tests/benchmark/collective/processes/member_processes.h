// The rank processes of one implementation. They live as long as the run, and sleep while others
// are measured.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_MEMBER_PROCESSES_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_MEMBER_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/benchmark/collective/processes/control_socket.h"
#include "tests/benchmark/collective/processes/work.h"
#include "tests/benchmark/harness/child_process.h"

namespace cohort::benchmark {

using Command = std::vector<std::string>;

struct MemberProcessesOptions {
  std::string name;  // of its log, too
  int members = 0;
  std::string scratch;
  absl::Duration deadline = absl::Seconds(20);  // of every call
  // The processes to start, which start `members` member programs (member_main.h), all with
  // these arguments and a rank each.
  std::function<std::vector<Command>(const Command& arguments)> commands;
};

// Returns `program --rank R` with `arguments`, for each rank: for implementations without a
// launcher.
std::vector<Command> OneForEachRank(const std::string& program, int members,
                                    const Command& arguments);

// Times of single calls; each value is the greatest among the ranks.
struct CallTimes {
  double median_us = 0;
  double p99_us = 0;
  double mean_us = 0;
  int64_t calls = 0;
};

// Not thread-safe. If a member does not answer in time, or has ended, all members are
// ended: the call fails, and the next Start makes new ones.
//
// Errors of all calls: DEADLINE_EXCEEDED, UNAVAILABLE (ended), CANCELLED (a stop signal came).
class MemberProcesses {
 public:
  explicit MemberProcesses(MemberProcessesOptions options) : options_(std::move(options)) {}
  // Asks the members to end, and kills those that have not ended within five seconds.
  ~MemberProcesses() { End(); }

  const std::string& name() const { return options_.name; }
  int members() const { return options_.members; }

  // Returns when all members have formed their group, at once if they already have. After a few
  // failures every later Start fails.
  absl::Status Start();
  // How many times the members have been started. A later start has none of the work that an
  // earlier one prepared.
  int start_count() const { return starts_; }

  // Makes a piece of work ready under a number, and verifies it. Also UNIMPLEMENTED, and INTERNAL
  // with a member's text.
  absl::Status Prepare(int id, const Work& work);
  // Seconds for each iteration, of the slowest rank.
  absl::StatusOr<double> Run(int id, int64_t iterations);
  // As Run, but each rank times every call, and keeps the times under `series`, a word.
  absl::Status Sample(int id, int64_t iterations, const std::string& series);
  // The times of all samples of that series so far.
  absl::StatusOr<CallTimes> TimesOf(int id, const std::string& series);
  absl::Status Forget(int id);

  void End();

 private:
  struct Connection {
    ControlSocket control;
    int pidfd = -1;
    std::optional<int> rank;
  };

  absl::Status StartProcesses();
  absl::Status Welcome(absl::Time deadline);
  // Sends the same text to all members and returns their answers. Kills the members if it fails.
  absl::StatusOr<std::vector<std::string>> Ask(const std::string& text);
  absl::StatusOr<std::vector<std::string>> Answers(absl::Time deadline);
  void Kill();

  const MemberProcessesOptions options_;
  int starts_ = 0;
  int failures_ = 0;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
  std::vector<Connection> connections_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_MEMBER_PROCESSES_H_
