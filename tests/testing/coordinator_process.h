// A real coordinator in a process of its own, for tests: it starts on a free port, and tests kill
// it or ask it to end.
#ifndef COHORT_TESTS_TESTING_COORDINATOR_PROCESS_H_
#define COHORT_TESTS_TESTING_COORDINATOR_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::testing {

// More flags for all coordinators, separated by spaces.
inline constexpr char kCoordinatorFlagsVariable[] = "COHORT_TEST_COORDINATOR_FLAGS";

std::vector<std::string> MoreCoordinatorFlags();

// Thread-compatible. The destructor kills the process.
class CoordinatorProcess {
 public:
  struct Options {
    // Below the test's runfiles, or absolute.
    std::string binary = "coordinator/cohort-coordinator";
    // 0: a free one, the same in every Start of this object.
    int port = 0;
    // More flags, such as {"--journal", "sqlite", "--journal-path", PATH}.
    std::vector<std::string> flags;
    // NAME=VALUE, before those of this process.
    std::vector<std::string> environment;
    absl::Duration start_timeout = absl::Seconds(20);
  };

  explicit CoordinatorProcess(Options options);
  ~CoordinatorProcess();
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  // Starts the coordinator and waits until it listens. UNAVAILABLE: it ended, or did not listen in
  // time.
  absl::Status Start();
  // "127.0.0.1:port", after Start.
  std::string address() const;
  pid_t pid() const { return pid_; }

  // Sends SIGKILL, and waits until the process is gone.
  void Kill();
  // Sends SIGTERM and returns the exit status. DEADLINE_EXCEEDED: the process still runs.
  absl::StatusOr<int> Terminate(absl::Duration timeout);
  // Returns the exit status of a process that should end by itself. DEADLINE_EXCEEDED as above.
  absl::StatusOr<int> Wait(absl::Duration timeout);
  // Pause sends SIGSTOP and waits until the process has stopped; Resume sends SIGCONT.
  void Pause();
  void Resume();

 private:
  const Options options_;
  const std::string port_file_;
  int port_ = 0;
  pid_t pid_ = -1;
};

// The path of a program of the build: below the test's runfiles or, in a bundle, in the folder that
// $COHORT_TEST_PROGRAMS names.
std::string ProgramPath(const std::string& path);

// Makes an empty folder for this test alone, and returns its path.
std::string NewFolder();

}  // namespace cohort::testing

#endif  // COHORT_TESTS_TESTING_COORDINATOR_PROCESS_H_
