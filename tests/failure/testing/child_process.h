// A program that a test starts, talks to by lines, and ends by its process id.
#ifndef COHORT_TESTS_FAILURE_TESTING_CHILD_PROCESS_H_
#define COHORT_TESTS_FAILURE_TESTING_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::testing {

// Thread-compatible. The destructor kills the process.
class ChildProcess {
 public:
  // `command[0]` is as for ProgramPath (coordinator_process.h). Standard error goes to a file of
  // the test's own; standard input and output are pipes. Aborts when the program cannot be started.
  explicit ChildProcess(std::vector<std::string> command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  void WriteLine(const std::string& line);
  // Returns the line without its newline. DEADLINE_EXCEEDED: no line came. UNAVAILABLE: the process
  // has closed its output.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  // The text that it has written to standard error so far.
  std::string ErrorText() const;

  void Signal(int signal);
  // Sends SIGKILL, and waits until the process is gone.
  void Kill();
  // Its exit status, or 128 + the signal that ended it. DEADLINE_EXCEEDED: it still runs.
  absl::StatusOr<int> Wait(absl::Duration timeout);

 private:
  const std::string error_path_;
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string unread_;
  std::optional<int> exit_;
};

// VmRSS of a process.
int64_t ResidentBytes(pid_t pid);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_CHILD_PROCESS_H_
