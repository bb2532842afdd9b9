// Every flag of cohort-worker, with its unit and default.
#ifndef COHORT_WORKER_DAEMON_OPTIONS_H_
#define COHORT_WORKER_DAEMON_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/text/logging.h"

namespace cohort::worker {

struct Options {
  std::string coordinator = "127.0.0.1:7700";
  std::vector<std::string> listen = {"127.0.0.1:7800"};
  bool insecure = false;
  std::string metrics_listen = "127.0.0.1:7801";  // empty: off
  std::string advertise;                          // empty: the one towards the coordinator
  std::string host_identity;                      // empty: this machine's
  LogOptions log;
  bool reflection = false;
  absl::Duration drain_grace = absl::Seconds(10);
  int max_calls = 1024;
  int max_calls_per_session = 256;
  absl::Duration stream_idle_limit = absl::Seconds(30);
  int max_descriptors = 0;              // of all sessions; 0: three eighths of RLIMIT_NOFILE
  int max_descriptors_per_session = 0;  // 0: half of max_descriptors
  int64_t max_message_bytes = int64_t{16} << 20;
  std::string port_file;
  bool check_config = false;
};

// The result of reading the command line.
struct ParsedOptions {
  Options options;
  // The text of --help or --version: print it and exit 0.
  std::string message;
};

// Reads flags, and the file named by --config (ini or toml; flags win). The environment is not
// read. Errors: INVALID_ARGUMENT, with a text for the user.
absl::StatusOr<ParsedOptions> ParseOptions(int argc, const char* const* argv);

// Returns `name = value` lines, which --config reads.
std::string FormatOptions(const Options& options);

// Returns the options that differ from the defaults, for people: "coordinator=c:7700 max-calls=8".
// Empty if none differs.
std::string FormatChanges(const Options& options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_OPTIONS_H_
