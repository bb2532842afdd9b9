// Counts a worker's calls for Prometheus.
#ifndef COHORT_WORKER_DAEMON_METHODS_METRICS_H_
#define COHORT_WORKER_DAEMON_METHODS_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/collective/collective.h"
#include "base/daemon/metrics_access.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker {

// Thread-safe. Labels are collectives, sizes and codes. Only the seconds that ranks waited for each
// other have names that clients chose; they disappear with the rank.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Serves /metrics at `address` until Stop; `sessions` lives until then. Port 0 picks one.
  // Errors: UNAVAILABLE (cannot be bound; names the address).
  absl::Status Serve(const std::string& address, const SessionTable& sessions,
                     MetricsAccess access);
  // The port of Serve; 0 when not serving.
  int port() const;
  void Stop();

  // The text that is served.
  std::string Collect() const;

  // Counts a collective that has ended. `bytes` is the larger of input and output.
  void OnCall(Collective collective, int64_t bytes, absl::Duration took, absl::StatusCode code) {
    OnCall(NameOf(collective).data(), bytes, took, code);
  }
  // Counts a call on objects that has ended. `name` lives for ever.
  void OnCall(const char* name, int64_t bytes, absl::Duration took, absl::StatusCode code);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_METRICS_H_
