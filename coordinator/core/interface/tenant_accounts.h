// The accounts of all tenants for which the coordinator keeps something.
//
//   TenantAccounts tenants(whole);
//   std::shared_ptr<MemoryAccount> account = tenants.Of("team-a");
//   if (auto status = CheckCount(*account, QuotaKind::kStreams, limits); !status.ok()) return
//   status;
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_TENANT_ACCOUNTS_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_TENANT_ACCOUNTS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/memory_account.h"

namespace cohort::coordinator {

// Thread-safe. A call about a group or store that exists takes no lock here.
class TenantAccounts {
 public:
  explicit TenantAccounts(std::shared_ptr<MemoryAccount> whole);

  const std::shared_ptr<MemoryAccount>& whole() const { return whole_; }
  // Makes the account if it does not exist. It goes with its last holder, which may outlive this
  // object.
  std::shared_ptr<MemoryAccount> Of(const std::string& tenant);
  // By name.
  std::vector<std::shared_ptr<const MemoryAccount>> All() const;

 private:
  struct Known {
    Mutex mutex;
    std::map<std::string, std::weak_ptr<MemoryAccount>> accounts ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<MemoryAccount> whole_;
  const std::shared_ptr<Known> known_ = std::make_shared<Known>();
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_TENANT_ACCOUNTS_H_
