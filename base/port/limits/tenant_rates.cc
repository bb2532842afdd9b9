#include "base/port/limits/tenant_rates.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace cohort {

absl::Duration TenantRates::OnRequest(absl::string_view tenant, int64_t weight, int64_t limit,
                                      Instant now) {
  const int64_t now_ns = absl::ToUnixNanos(now);
  const size_t place = absl::Hash<absl::string_view>()(tenant) % kPlaces;
  if (last_place_.load(std::memory_order_relaxed) != place &&
      last_place_.exchange(place, std::memory_order_relaxed) != kPlaces) {
    last_change_.store(now_ns, std::memory_order_relaxed);
  }
  const int64_t cost =
      weight * absl::ToInt64Nanoseconds(absl::Seconds(1)) / std::max<int64_t>(limit, 1);
  std::atomic<int64_t>& used = used_until_[place];
  // A debt that no pause asks for is not kept.
  const int64_t most = now_ns + absl::ToInt64Nanoseconds(kLongestPause);
  int64_t before = used.load(std::memory_order_relaxed), until = 0;
  do {
    until = std::min(std::max(before, now_ns) + cost, most);
  } while (!used.compare_exchange_weak(before, until, std::memory_order_relaxed));
  const bool alone =
      now_ns - last_change_.load(std::memory_order_relaxed) > absl::ToInt64Nanoseconds(kCompany);
  if (alone) {
    // It owes nothing to tenants that come later.
    used.store(std::min(until, now_ns + absl::ToInt64Nanoseconds(kBurst)),
               std::memory_order_relaxed);
    return absl::ZeroDuration();
  }
  const absl::Duration ahead = absl::Nanoseconds(until - now_ns);
  return ahead <= kBurst ? absl::ZeroDuration() : std::min(ahead, kLongestPause);
}

}  // namespace cohort
