#include "base/daemon/metrics_access.h"

#include <utility>

#include "base/daemon/flags.h"
#include "base/port/socket/listen_address.h"
#include "base/status_macros.h"

namespace cohort {

absl::StatusOr<MetricsAccess> MetricsAccessOf(const DaemonOptions& options,
                                              std::shared_ptr<AccessPolicy> policy,
                                              std::shared_ptr<TlsContext> certificates) {
  MetricsAccess access;
  access.certificates = std::move(certificates);
  if (!options.access_policy.empty()) access.policy = std::move(policy);
  if (options.tls.certificate.empty()) return access;
  COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(options.metrics_listen));
  if (address.is_loopback()) return access;
  COHORT_ASSIGN_OR_RETURN(access.tls, TlsContext::Load(options.tls, TlsSide::kHttpServer));
  return access;
}

}  // namespace cohort
