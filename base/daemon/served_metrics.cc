#include "base/daemon/served_metrics.h"

#include <utility>
#include <vector>

#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/tls/tls_context.h"

namespace cohort {
namespace {

// Whether the files that give rights could be used when they last changed.
class AccessFiles final : public prometheus::Collectable {
 public:
  explicit AccessFiles(const MetricsAccess& access)
      : policy_(access.policy), certificates_(access.certificates) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::MetricFamily family{
        "cohort_unusable_access_files",
        "1: the file has changed and cannot be used, so the rights of before go on.",
        prometheus::MetricType::Gauge,
        {}};
    const auto add = [&family](const char* file, bool usable) {
      prometheus::ClientMetric metric;
      metric.label = {{"file", file}};
      metric.gauge.value = usable ? 0 : 1;
      family.metric.push_back(std::move(metric));
    };
    if (policy_ != nullptr) {
      add("access_policy", policy_->file_is_usable());
      add("keys_of_issuers", policy_->keys_are_usable());
    }
    if (certificates_ != nullptr) {
      (void)certificates_->Current(Clock::Steady().Now());
      add("certificates", certificates_->last_error().ok());
    }
    return {std::move(family)};
  }

 private:
  const std::shared_ptr<AccessPolicy> policy_;
  const std::shared_ptr<TlsContext> certificates_;
};

}  // namespace

absl::Status ServedMetrics::Serve(const std::string& address,
                                  std::shared_ptr<prometheus::Collectable> gauges,
                                  MetricsAccess access) {
  sources_ = {counters_, std::move(gauges)};
  if (access.policy != nullptr || access.certificates != nullptr) {
    sources_.push_back(std::make_shared<AccessFiles>(access));
  }
  COHORT_ASSIGN_OR_RETURN(endpoint_, MetricsEndpoint::Start(address, sources_, std::move(access)));
  return absl::OkStatus();
}

void ServedMetrics::Stop() {
  endpoint_.reset();
  sources_ = {counters_};
}

std::string ServedMetrics::Collect() const { return MetricsText(sources_); }

prometheus::MetricFamily MakeFamily(const char* name, const char* help, prometheus::MetricType type,
                                    double value) {
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return {name, help, type, {std::move(metric)}};
}

}  // namespace cohort
