// Where Prometheus reads what a daemon counts.
#ifndef COHORT_BASE_DAEMON_METRICS_ENDPOINT_H_
#define COHORT_BASE_DAEMON_METRICS_ENDPOINT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"

namespace cohort {

// Thread-compatible.
class MetricsEndpoint {
 public:
  using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

  // Serves http://`address`/metrics, and looks at the sources at each scrape. Port 0 picks one.
  // Errors: INVALID_ARGUMENT (that is no host:port); UNAVAILABLE (cannot be bound; names the
  // address).
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& address,
                                                                Sources sources);
  // Stops, behind a scrape that runs. At once, unless somebody is connected and says nothing: then
  // within two seconds.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const { return exposer_->GetListeningPorts().front(); }

 private:
  MetricsEndpoint(std::string host, Sources sources, std::unique_ptr<prometheus::Exposer> exposer);
  void Knock(int port) const;

  const std::string host_;
  const Sources sources_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_METRICS_ENDPOINT_H_
