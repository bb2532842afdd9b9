// Counts a resource for each identity of clients and for each tenant. One identity, however many
// sessions it has, leaves others a quarter; one tenant, however many identities it has, an eighth.
#ifndef COHORT_WORKER_DAEMON_LIMITS_PAYER_COUNTS_H_
#define COHORT_WORKER_DAEMON_LIMITS_PAYER_COUNTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {

// The client that a use counts for.
struct Payer {
  std::string identity{};  // empty: the worker has no access policy
  std::string tenant{};    // its own one; empty: it has none
};

// Names that are empty are not counted. Thread-compatible.
class PayerCounts {
 public:
  // The payer that has no room.
  struct Full {
    std::string who;  // such as: tenant a
    const char* kind;
    int64_t has;
    int64_t most;
  };

  // Nothing: `payer` may have `count` more of `all`.
  std::optional<Full> WhoIsFull(const Payer& payer, int64_t count, int64_t all) const {
    const int64_t identity = all - all / 4;
    if (!payer.identity.empty() && count > identity - Of(identities_, payer.identity)) {
      return Full{payer.identity, "identity", Of(identities_, payer.identity), identity};
    }
    const int64_t tenant = all - all / 8;
    if (!payer.tenant.empty() && count > tenant - Of(tenants_, payer.tenant)) {
      return Full{absl::StrCat("tenant ", payer.tenant), "tenant", Of(tenants_, payer.tenant),
                  tenant};
    }
    return std::nullopt;
  }
  void Add(const Payer& payer, int64_t count) {
    Add(identities_, payer.identity, count);
    Add(tenants_, payer.tenant, count);
  }

 private:
  using Counts = absl::flat_hash_map<std::string, int64_t>;

  static int64_t Of(const Counts& counts, const std::string& name) {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  }
  static void Add(Counts& counts, const std::string& name, int64_t count) {
    if (name.empty() || count == 0) return;
    const auto entry = counts.try_emplace(name, 0).first;
    entry->second += count;
    if (entry->second == 0) counts.erase(entry);
  }

  Counts identities_;
  Counts tenants_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_LIMITS_PAYER_COUNTS_H_
