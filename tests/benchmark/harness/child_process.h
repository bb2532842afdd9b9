// A server or helper that the benchmark starts, talks to and ends by its process id.
#ifndef COHORT_TESTS_BENCHMARK_HARNESS_CHILD_PROCESS_H_
#define COHORT_TESTS_BENCHMARK_HARNESS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort::benchmark {

struct ChildProcessOptions {
  std::vector<std::string> command;  // the program's path comes first
  std::string log_path;              // standard error, and standard output unless `pipes`
  bool pipes = false;                // lines to its standard input and from its standard output
};

struct ExitStatus {
  int code = -1;   // when it ended by itself
  int signal = 0;  // when a signal ended it
};

// Not thread-safe. The child is also killed when this process dies.
class ChildProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildProcessOptions& options);
  // Asks the child to end, and kills it if it has not ended within five seconds.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  absl::Status Signal(int signal);
  // DEADLINE_EXCEEDED if the child still runs after `timeout`.
  absl::StatusOr<ExitStatus> Wait(absl::Duration timeout);

  // Only with `pipes`; a line has no newline at its end. UNAVAILABLE: the child has closed its
  // side.
  absl::Status WriteLine(absl::string_view line);
  absl::StatusOr<std::string> ReadLine();

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  std::optional<ExitStatus> exit_;
  std::FILE* to_child_ = nullptr;
  std::FILE* from_child_ = nullptr;
};

// Waits until a server has written PORT or HOST:PORT into the first line of `path`, which must not
// have existed before.
absl::StatusOr<int> WaitForPortFile(const std::string& path, ChildProcess& server,
                                    absl::Duration timeout = absl::Seconds(20));
// Returns a port of 127.0.0.1 that no process listens on now, for servers that cannot pick one
// themselves.
absl::StatusOr<int> FreeLoopbackPort();
// VmRSS of a process.
absl::StatusOr<int64_t> ResidentBytes(pid_t pid);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_HARNESS_CHILD_PROCESS_H_
