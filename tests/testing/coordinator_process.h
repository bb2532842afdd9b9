// A real coordinator in a process of its own, for tests: started on a free port, killed or asked to
// end.
#ifndef COHORT_TESTS_TESTING_COORDINATOR_PROCESS_H_
#define COHORT_TESTS_TESTING_COORDINATOR_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::testing {

// Thread-compatible. Kills its process when it goes.
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

  // Starts it and waits until it listens. UNAVAILABLE: it ended, or did not listen in time.
  absl::Status Start();
  // "127.0.0.1:port", after Start.
  std::string address() const;
  pid_t pid() const { return pid_; }

  // SIGKILL, and waits until the process is gone.
  void Kill();
  // SIGTERM; its exit status. DEADLINE_EXCEEDED: it still runs.
  absl::StatusOr<int> Terminate(absl::Duration timeout);
  // The same, of a process that should end by itself.
  absl::StatusOr<int> Wait(absl::Duration timeout);
  // SIGSTOP, until it has stopped; and SIGCONT.
  void Pause();
  void Resume();

 private:
  const Options options_;
  const std::string port_file_;
  int port_ = 0;
  pid_t pid_ = -1;
};

// A program of the build: below the test's runfiles; or in a bundle, where all lie in the folder
// that $COHORT_TEST_PROGRAMS names.
std::string ProgramPath(const std::string& path);

// A new empty folder of this test's own.
std::string NewFolder();

}  // namespace cohort::testing

#endif  // COHORT_TESTS_TESTING_COORDINATOR_PROCESS_H_
