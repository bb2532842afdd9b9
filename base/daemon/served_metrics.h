// The metrics of a daemon: its own, and those that all daemons have.
#ifndef COHORT_BASE_DAEMON_SERVED_METRICS_H_
#define COHORT_BASE_DAEMON_SERVED_METRICS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/daemon/metrics_access.h"
#include "base/daemon/metrics_endpoint.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"
#include "prometheus/registry.h"

namespace cohort {

// A daemon's counters, which are always there, and the gauges that it reads at each scrape.
// Thread-compatible.
class ServedMetrics {
 public:
  prometheus::Registry& counters() { return *counters_; }
  // Serves both until Stop, as MetricsEndpoint::Start does.
  absl::Status Serve(const std::string& address, std::shared_ptr<prometheus::Collectable> gauges,
                     MetricsAccess access);
  void Stop();
  // The port of Serve; 0 when not serving.
  int port() const { return endpoint_ == nullptr ? 0 : endpoint_->port(); }
  // The text that is served.
  std::string Collect() const;

 private:
  const std::shared_ptr<prometheus::Registry> counters_ = std::make_shared<prometheus::Registry>();
  MetricsEndpoint::Sources sources_ = {counters_};
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

// A family of one counter or gauge without labels.
prometheus::MetricFamily MakeFamily(const char* name, const char* help, prometheus::MetricType type,
                                    double value);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_SERVED_METRICS_H_
