// Counts a resource for each identity of clients. One identity, however many sessions it has,
// leaves others a quarter.
#ifndef COHORT_WORKER_DAEMON_LIMITS_IDENTITY_COUNTS_H_
#define COHORT_WORKER_DAEMON_LIMITS_IDENTITY_COUNTS_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace cohort::worker {

// Identities without a name, those of a worker without an access policy, are not counted.
// Thread-compatible.
class IdentityCounts {
 public:
  // The most that one identity may have of `all`.
  static int64_t MostOf(int64_t all) { return all - all / 4; }

  int64_t Of(const std::string& identity) const {
    const auto found = counts_.find(identity);
    return found == counts_.end() ? 0 : found->second;
  }
  // Whether the identity may have `count` more of `all`.
  bool HasRoom(const std::string& identity, int64_t count, int64_t all) const {
    return identity.empty() || count <= MostOf(all) - Of(identity);
  }
  void Add(const std::string& identity, int64_t count) {
    if (identity.empty() || count == 0) return;
    const auto entry = counts_.try_emplace(identity, 0).first;
    entry->second += count;
    if (entry->second == 0) counts_.erase(entry);
  }

 private:
  absl::flat_hash_map<std::string, int64_t> counts_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_LIMITS_IDENTITY_COUNTS_H_
