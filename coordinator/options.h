// Every flag of cohort-coordinator, with its unit and default.
#ifndef COHORT_COORDINATOR_OPTIONS_H_
#define COHORT_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/memory/memory_limit.h"
#include "base/rpc/listener/listener.h"
#include "base/text/logging.h"
#include "coordinator/core/interface/limits.h"

namespace cohort::coordinator {

enum class JournalKind { kMemory, kSqlite };

// The default limits of a process that may use `memory_bytes`. max_bytes_held is half of it,
// because malloc, gRPC and the journal need memory, too.
Limits DefaultLimits(int64_t memory_bytes);

struct Options {
  std::vector<std::string> listen = {"127.0.0.1:7700"};
  std::string metrics_listen = "127.0.0.1:7701";  // empty: off
  bool insecure = false;
  JournalKind journal = JournalKind::kMemory;
  std::string journal_path;
  int shards = 4;
  LogOptions log;
  bool reflection = false;
  int framed_rpc_threads = 1;  // 0: gRPC alone
  absl::Duration drain_grace = absl::Seconds(10);
  absl::Duration ping_timeout = absl::Seconds(40);  // zero: no pings
  absl::Duration max_wait = absl::Hours(1);
  int64_t max_message_bytes = int64_t{4} << 20;
  // Limits of connections and of the bytes that each may send.
  ListenerOptions listener;
  Limits limits = DefaultLimits(MemoryLimitBytes());
  std::string port_file;
  bool check_config = false;
};

// The result of the command line.
struct ParsedOptions {
  Options options;
  // Set for --help and --version: print it and exit 0.
  std::string message;
};

// Reads flags, and the file named by --config (ini or toml; flags win). The environment is not
// read. Errors: INVALID_ARGUMENT, with a text for the user.
absl::StatusOr<ParsedOptions> ParseOptions(int argc, const char* const* argv);

// As `name = value` lines that --config reads back.
std::string FormatOptions(const Options& options);

// The options that differ from their defaults, for people: "journal=sqlite journal-path=/j
// max_keys=5". Empty: all options have their defaults.
std::string FormatChanges(const Options& options);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_OPTIONS_H_
