#include "coordinator/core/interface/tenant_accounts.h"

#include <utility>

namespace cohort::coordinator {
namespace {

// The account, the entry in the table, and the blocks around them.
int64_t CostOfAccount(const std::string& tenant) {
  return BlockCost(sizeof(MemoryAccount)) + BlockCost(64) +
         NodeCost<std::pair<std::string, std::weak_ptr<MemoryAccount>>>() + 2 * CostOf(tenant);
}

}  // namespace

TenantAccounts::TenantAccounts(std::shared_ptr<MemoryAccount> whole) : whole_(std::move(whole)) {}

std::shared_ptr<MemoryAccount> TenantAccounts::Of(const std::string& tenant) {
  {
    MutexLock lock(&known_->mutex);
    const auto found = known_->accounts.find(tenant);
    if (found != known_->accounts.end()) {
      if (auto account = found->second.lock(); account != nullptr) return account;
    }
  }
  // Without the lock, which the deleter takes.
  whole_->Add(MemoryKind::kNamespaces, CostOfAccount(tenant));
  std::shared_ptr<MemoryAccount> account(
      new MemoryAccount(whole_, tenant), [known = known_, whole = whole_](MemoryAccount* last) {
        whole->Add(MemoryKind::kNamespaces, -CostOfAccount(last->tenant()));
        {
          MutexLock lock(&known->mutex);
          const auto it = known->accounts.find(last->tenant());
          // Another thread may have made a new account of the same tenant.
          if (it != known->accounts.end() && it->second.expired()) known->accounts.erase(it);
        }
        delete last;
      });
  MutexLock lock(&known_->mutex);
  std::weak_ptr<MemoryAccount>& entry = known_->accounts[tenant];
  if (auto first = entry.lock(); first != nullptr) return first;  // of another thread
  entry = account;
  return account;
}

std::vector<std::shared_ptr<const MemoryAccount>> TenantAccounts::All() const {
  std::vector<std::shared_ptr<const MemoryAccount>> all;
  {
    MutexLock lock(&known_->mutex);
    for (const auto& [tenant, entry] : known_->accounts) {
      if (auto account = entry.lock(); account != nullptr) all.push_back(std::move(account));
    }
  }
  return all;
}

}  // namespace cohort::coordinator
