// A real coordinator whose log a test reads, with its metrics, and with few descriptors if the test
// asks for it.
#ifndef COHORT_TESTS_FAILURE_TESTING_LIMITED_COORDINATOR_H_
#define COHORT_TESTS_FAILURE_TESTING_LIMITED_COORDINATOR_H_

#include <signal.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "tests/failure/testing/child_process.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {

// Thread-compatible. The destructor kills the process.
class LimitedCoordinator {
 public:
  // Waits until the coordinator listens. `descriptors` 0: as many as this process may have.
  // `program`: a daemon with the same flags, such as a worker.
  absl::Status Start(std::vector<std::string> flags, int descriptors = 0,
                     const std::string& program = "coordinator/cohort-coordinator") {
    const std::string port_file = absl::StrCat(NewFolder(), "/port");
    const std::string limit = descriptors == 0 ? "" : absl::StrCat("ulimit -n ", descriptors, "; ");
    std::vector<std::string> command = {"/bin/sh",
                                        "-c",
                                        absl::StrCat(limit, "exec \"$0\" \"$@\""),
                                        ProgramPath(program),
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--metrics-listen",
                                        "127.0.0.1:0",
                                        "--port-file",
                                        port_file};
    for (const auto& each : {std::move(flags), MoreCoordinatorFlags()}) {
      command.insert(command.end(), each.begin(), each.end());
    }
    process_ = std::make_unique<ChildProcess>(std::move(command));
    const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
    while (port_ == 0 || metrics_port() == 0) {
      if (Clock::Steady().Now() > deadline) return absl::UnavailableError("it does not listen");
      if (process_->Wait(absl::Milliseconds(10)).ok()) return absl::UnavailableError("it ended");
      std::ifstream file(port_file);
      std::string line;
      if (!std::getline(file, line)) continue;
      if (!absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port_)) port_ = 0;
    }
    return absl::OkStatus();
  }

  pid_t pid() const { return process_->pid(); }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // From its log; 0: not logged yet.
  int metrics_port() const {
    static constexpr absl::string_view kName = "metrics_port=";
    const std::string text = ErrorText();
    const size_t at = text.find(kName.data());
    int port = 0;
    if (at == std::string::npos) return 0;
    const size_t digits = at + kName.size();
    const size_t end = text.find_first_not_of("0123456789", digits);
    return absl::SimpleAtoi(text.substr(digits, end - digits), &port) ? port : 0;
  }
  std::string ErrorText() const { return process_->ErrorText(); }
  int64_t ResidentBytes() const { return testing::ResidentBytes(process_->pid()); }

  // Sends SIGTERM and returns the exit status. DEADLINE_EXCEEDED: the process still runs.
  absl::StatusOr<int> Terminate(absl::Duration timeout) {
    process_->Signal(SIGTERM);
    return process_->Wait(timeout);
  }

 private:
  std::unique_ptr<ChildProcess> process_;
  int port_ = 0;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_LIMITED_COORDINATOR_H_
