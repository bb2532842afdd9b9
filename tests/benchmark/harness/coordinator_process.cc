#include "tests/benchmark/harness/coordinator_process.h"

#include <atomic>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::benchmark {

absl::StatusOr<CoordinatorProcess> StartCoordinator(const CoordinatorOptions& options) {
  static std::atomic<int> started{0};
  const std::string stem = absl::StrCat(options.scratch, "/coordinator-", ++started);
  const std::string port_file = stem + ".port";
  ChildProcessOptions child;
  child.command = {options.program,    "--listen", "127.0.0.1:0", "--port-file",  port_file,
                   "--metrics-listen", "",         "--journal",   options.journal};
  if (options.journal == "sqlite") {
    child.command.insert(child.command.end(), {"--journal-path", stem + ".sqlite"});
  }
  child.command.insert(child.command.end(), options.more_arguments.begin(),
                       options.more_arguments.end());
  child.log_path = stem + ".log";
  std::remove(port_file.c_str());  // of a run before
  CoordinatorProcess coordinator;
  COHORT_ASSIGN_OR_RETURN(coordinator.process, ChildProcess::Start(child));
  COHORT_ASSIGN_OR_RETURN(const int port, WaitForPortFile(port_file, *coordinator.process));
  coordinator.address = absl::StrCat("127.0.0.1:", port);
  return coordinator;
}

}  // namespace cohort::benchmark
