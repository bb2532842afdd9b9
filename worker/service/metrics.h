// What a worker counts, for Prometheus.
#ifndef COHORT_WORKER_SERVICE_METRICS_H_
#define COHORT_WORKER_SERVICE_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/service/session_table.h"

namespace cohort::worker {

// Thread-safe. Labels are verbs, sizes and codes; names that clients chose are in the seconds that
// ranks waited for each other alone, which go with the rank that lives here.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Serves http://`address`/metrics until Stop, until when `sessions` lives. Port 0 picks one.
  // Errors: UNAVAILABLE (cannot be bound; names the address).
  absl::Status Serve(const std::string& address, const SessionTable& sessions);
  // The port of Serve; 0 when not serving.
  int port() const;
  void Stop();

  // The text that is served.
  std::string Collect() const;

  // A verb has ended; its name lives for ever. `bytes`: of the larger of input and output.
  void OnCall(const char* verb, int64_t bytes, absl::Duration took, absl::StatusCode code);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_METRICS_H_
