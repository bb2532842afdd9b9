// The tallies of one shard: one for each tenant that has a group or a store in it.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_TENANT_TALLIES_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_TENANT_TALLIES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/tenant_accounts.h"

namespace cohort::coordinator {

// Confined to the thread that has the shard; outlives all tallies.
class TenantTallies {
 public:
  explicit TenantTallies(std::shared_ptr<TenantAccounts> accounts)
      : accounts_(std::move(accounts)), whole_(accounts_->whole(), &changed_) {}
  TenantTallies(const TenantTallies&) = delete;
  TenantTallies& operator=(const TenantTallies&) = delete;

  // For memory that is of no tenant.
  Tally& whole() { return whole_; }
  const Tally& whole() const { return whole_; }
  // Makes the tally if it does not exist. It goes with its last holder.
  std::shared_ptr<Tally> Of(const std::string& tenant) {
    std::weak_ptr<Tally>& entry = tallies_[tenant];
    if (std::shared_ptr<Tally> tally = entry.lock(); tally != nullptr) return tally;
    whole_.Add(MemoryKind::kNamespaces, Cost(tenant));
    std::shared_ptr<Tally> tally(new Tally(accounts_->Of(tenant), &changed_), [this](Tally* last) {
      const std::string name = last->account()->tenant();
      delete last;
      tallies_.erase(name);
      whole_.Add(MemoryKind::kNamespaces, -Cost(name));
    });
    entry = tally;
    return tally;
  }
  // Ends a step: moves all charges to the accounts.
  void Publish() {
    while (!changed_.empty()) {
      Tally* const tally = changed_.back();
      changed_.pop_back();
      tally->Publish();
    }
  }

 private:
  static int64_t Cost(const std::string& tenant) {
    return BlockCost(sizeof(Tally)) + BlockCost(64) +
           SlotCost<std::pair<std::string, std::weak_ptr<Tally>>>() + CostOf(tenant);
  }

  const std::shared_ptr<TenantAccounts> accounts_;
  ChangedTallies changed_;
  Tally whole_;
  absl::flat_hash_map<std::string, std::weak_ptr<Tally>> tallies_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_TENANT_TALLIES_H_
