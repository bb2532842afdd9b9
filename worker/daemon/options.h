// Every flag of cohort-worker, with its unit and default.
#ifndef COHORT_WORKER_DAEMON_OPTIONS_H_
#define COHORT_WORKER_DAEMON_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/daemon/flags.h"
#include "worker/daemon/limits/quota.h"

namespace cohort::worker {

struct Options : DaemonOptions {
  Options() : DaemonOptions(7800) {}

  std::string coordinator = "127.0.0.1:7700";
  std::vector<std::string> allowed_coordinators;
  std::string advertise;      // empty: the one towards the coordinator
  std::string host_identity;  // empty: this machine's
  std::string host_folder;    // empty: COHORT_HOST_FOLDER
  int max_calls = 1024;
  int max_calls_per_session = 256;
  absl::Duration stream_idle_limit = absl::Seconds(30);
  int max_descriptors = 0;              // of all sessions; 0: three eighths of RLIMIT_NOFILE
  int max_descriptors_per_session = 0;  // 0: half of max_descriptors
  int64_t max_tensor_bytes = 0;              // of all sessions; 0: 3/4 of the memory limit
  int64_t max_tensor_bytes_per_session = 0;  // 0: max_tensor_bytes
  int64_t max_message_bytes = int64_t{16} << 20;
};

// `options` outlives the flags.
Flags FlagsOf(Options& options);

// The limits on tensors of clients, in a process that may use `memory` bytes.
QuotaLimits TensorLimitsOf(const Options& options, int64_t memory);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_OPTIONS_H_
