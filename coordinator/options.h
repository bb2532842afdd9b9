// Every flag of cohort-coordinator, with its unit and default.
#ifndef COHORT_COORDINATOR_OPTIONS_H_
#define COHORT_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/daemon/flags.h"
#include "base/memory/memory_limit.h"
#include "base/port/listener.h"
#include "coordinator/core/interface/limits.h"
#include "coordinator/service/rpc_server.h"
#include "coordinator/service/torchft/quorum_decision.h"

namespace cohort::coordinator {

enum class JournalKind { kMemory, kSqlite };

// The default limits of a process that may use `memory_bytes`. max_bytes_held is half of it,
// because malloc, gRPC and the journal need memory, too. A tenant may have three quarters of that.
Limits DefaultLimits(int64_t memory_bytes);

struct Options : DaemonOptions {
  Options() : DaemonOptions(7700) {
    protocols = {kRpc, kTcpStore, kTorchft};
    listener.ends_with_certificates = true;
    listener.max_connection_age = absl::Hours(24);
  }

  JournalKind journal = JournalKind::kMemory;
  std::string journal_path;
  bool restored = false;  // the journal is an older copy (restored_journal.h)
  int shards = 4;
  int framed_rpc_threads = 1;                       // 0: gRPC alone
  int tcpstore_threads = 1;                         // 0: TCPStore clients are not served
  torchft::QuorumOptions torchft;                   // min_replicas 0: it is not served
  absl::Duration ping_timeout = absl::Seconds(40);  // zero: no pings
  absl::Duration max_wait = absl::Hours(1);
  int64_t max_message_bytes = int64_t{4} << 20;
  // Limits of connections and of the bytes that each may send.
  ListenerOptions listener;
  Limits limits = DefaultLimits(MemoryLimitBytes());
};

// `options` outlives the flags.
Flags FlagsOf(Options& options);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_OPTIONS_H_
