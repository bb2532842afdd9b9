// The clients that may read a daemon's metrics, and how they connect.
#ifndef COHORT_BASE_DAEMON_METRICS_ACCESS_H_
#define COHORT_BASE_DAEMON_METRICS_ACCESS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/access/access_policy.h"
#include "base/tls/tls_context.h"

namespace cohort {

struct DaemonOptions;

struct MetricsAccess {
  std::shared_ptr<TlsContext> tls;  // null: plain connections
  // Clients need the role observer in any tenant; null: each client that can connect may read.
  std::shared_ptr<AccessPolicy> policy;
  // The certificates of the daemon's other addresses, whose state a metric tells; null: they have none.
  std::shared_ptr<TlsContext> certificates;
};

// The access that a daemon's flags ask for: the policy, if it is in a file, and TLS with the
// certificates of the daemon's other addresses. Connections are plain on loopback, and with
// --insecure if there are no certificates. Errors: those of TlsContext::Load.
absl::StatusOr<MetricsAccess> MetricsAccessOf(const DaemonOptions& options,
                                              std::shared_ptr<AccessPolicy> policy,
                                              std::shared_ptr<TlsContext> certificates);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_METRICS_ACCESS_H_
