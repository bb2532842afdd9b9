// The rates of requests of tenants: a tenant over its rate is read more slowly, as long as others
// call.
//
//   TenantRates rates;
//   const absl::Duration pause = rates.OnRequest("team-a", weight, limit, now);
//   if (pause > absl::ZeroDuration()) access->PauseReading(now + pause);
#ifndef COHORT_BASE_PORT_LIMITS_TENANT_RATES_H_
#define COHORT_BASE_PORT_LIMITS_TENANT_RATES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort {

// Thread-safe; no method takes a lock or memory.
class TenantRates {
 public:
  // The weights of a request in plain frames and of one over gRPC, by the time that each takes. A
  // larger request counts once more for each of these bytes.
  static constexpr int64_t kFramedRequest = 1;
  static constexpr int64_t kGrpcRequest = 10;
  static constexpr int64_t kBytesEach = 2048;
  // Requests above the rate that come this early are not delayed.
  static constexpr absl::Duration kBurst = absl::Milliseconds(2);
  // A tenant has company for so long after the last request of another one.
  static constexpr absl::Duration kCompany = absl::Seconds(1);
  static constexpr absl::Duration kLongestPause = absl::Seconds(1);

  // Counts a request as `weight` requests. Returns how long the client has to wait until its next
  // one, at `limit` requests a second; zero: not at all, or no other tenant has called lately.
  absl::Duration OnRequest(absl::string_view tenant, int64_t weight, int64_t limit, Instant now);

 private:
  // Tenants that share a place by their hash share its rate. No call fails for that.
  static constexpr size_t kPlaces = 4096;

  // The instant, in nanoseconds, up to which each tenant has used its rate.
  std::array<std::atomic<int64_t>, kPlaces> used_until_{};
  std::atomic<size_t> last_place_{kPlaces};
  std::atomic<int64_t> last_change_{0};  // of the tenant that calls, in nanoseconds
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_LIMITS_TENANT_RATES_H_
