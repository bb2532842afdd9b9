// The access policy of a daemon.
#ifndef COHORT_BASE_DAEMON_ACCESS_POLICY_OF_FLAGS_H_
#define COHORT_BASE_DAEMON_ACCESS_POLICY_OF_FLAGS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/access/access_policy.h"
#include "base/daemon/flags.h"

namespace cohort {

// The policy in the file of --access-policy. Without the flag, AccessPolicy::WithoutFile if clients
// need certificates, and null (each client has all rights) if they do not, or with --insecure.
// Errors: those of AccessPolicy::Load.
absl::StatusOr<std::shared_ptr<AccessPolicy>> AccessPolicyOf(const DaemonOptions& options);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_ACCESS_POLICY_OF_FLAGS_H_
