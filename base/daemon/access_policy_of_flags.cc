#include "base/daemon/access_policy_of_flags.h"

#include "base/status_macros.h"

namespace cohort {

absl::StatusOr<std::shared_ptr<AccessPolicy>> AccessPolicyOf(const DaemonOptions& options) {
  std::shared_ptr<AccessPolicy> policy;
  if (!options.access_policy.empty()) {
    COHORT_ASSIGN_OR_RETURN(policy, AccessPolicy::Load(options.access_policy));
  } else if (options.tls.has_ca() && !options.insecure) {
    policy = AccessPolicy::WithoutFile();
  }
  return policy;
}

}  // namespace cohort
