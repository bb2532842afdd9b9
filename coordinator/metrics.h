// The coordinator's metrics, for Prometheus.
#ifndef COHORT_COORDINATOR_METRICS_H_
#define COHORT_COORDINATOR_METRICS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/daemon/metrics_access.h"
#include "coordinator/service/dispatch/call_observer.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/engine/engine_observer.h"

namespace cohort::coordinator {

// Thread-safe. Counters are found once, not on each call. Labels are methods and codes only: never
// a name that a caller chose.
class Metrics final : public CallObserver, public EngineObserver {
 public:
  Metrics();
  ~Metrics() override;

  // Serves /metrics at `address` until destruction. Gauges are read from `engine` at each
  // scrape; it must live until Stop. Port 0 picks one. Errors: UNAVAILABLE (cannot be bound; names
  // the address).
  absl::Status Serve(const std::string& address, const Engine& engine, MetricsAccess access);
  // The port of Serve; 0 when not serving.
  int port() const;
  // Stops serving.
  void Stop();

  // The text that is served.
  std::string Collect() const;

  void OnStarted(Method method) override;
  void OnHandled(Method method, absl::StatusCode code, absl::Duration took) override;
  void OnRoundEnd(const RoundEnd& end) override;
  void OnGroupEvent(const GroupKey& key, const GroupEvent& event) override;
  void OnAppend(absl::Duration took, size_t record_count) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_METRICS_H_
