// The main function of a daemon around its flags and its work.
#ifndef COHORT_BASE_DAEMON_RUN_DAEMON_H_
#define COHORT_BASE_DAEMON_RUN_DAEMON_H_

#include <signal.h>

#include <functional>

#include "absl/status/statusor.h"
#include "base/daemon/flags.h"

namespace cohort {

// Reads the flags into `options`, prepares the process, and calls `serve` with the signals that it
// waits for. SIGTERM and SIGINT are blocked in all threads. Returns the exit code: that of `serve`;
// 0 for --help, --version and --check-config; 1 if `serve` fails; 2 if the configuration is wrong.
int RunDaemon(int argc, char** argv, Flags& flags, const DaemonOptions& options,
              const std::function<absl::StatusOr<int>(const sigset_t& signals)>& serve);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_RUN_DAEMON_H_
