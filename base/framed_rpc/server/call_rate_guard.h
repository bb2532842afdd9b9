// Counts the calls that the client of one connection starts and cancels, and fails when no honest
// client does that. It is the rule of base/port/limits/http2_guard.h for plain frames.
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_CALL_RATE_GUARD_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_CALL_RATE_GUARD_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/port/limits/rate_count.h"

namespace cohort::framed_rpc {

// The limits of one connection. A cancelled call costs less here than in gRPC, so these are
// multiples of the HTTP/2 limits, by whose names errors call them.
struct CallRateLimits {
  // Calls that the client cancels less than a second after it has started them.
  int max_resets_per_second = 16000;
  // Calls that are refused unread and cancels of calls that are over, in excess of four for each
  // call that was started.
  int max_idle_frames_per_second = 80000;
};

// Thread-compatible. Errors of all methods: RESOURCE_EXHAUSTED (names the limit and its value).
class CallRateGuard {
 public:
  explicit CallRateGuard(const CallRateLimits& limits) : limits_(limits) {}

  void OnStarted() { idle_.Excuse(kIdleFramesEach); }
  // A call that ran since `started` is cancelled.
  absl::Status OnCancelled(Instant started, Instant now, bool suspect) {
    if (now - started >= kRapid) return absl::OkStatus();
    return Check(resets_.Add(now, limits_.max_resets_per_second, suspect), "max_resets_per_second",
                 limits_.max_resets_per_second);
  }
  // A frame has no effect.
  absl::Status OnIdleFrame(Instant now, bool suspect) {
    return Check(idle_.Add(now, limits_.max_idle_frames_per_second, suspect),
                 "max_idle_frames_per_second", limits_.max_idle_frames_per_second);
  }

 private:
  static constexpr double kIdleFramesEach = 4;
  // A call that was parked for so long costs its caller more than its end costs the server.
  static constexpr absl::Duration kRapid = absl::Seconds(1);

  static absl::Status Check(bool within, absl::string_view limit, int value) {
    if (within) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the plain frames of a connection are over ", limit, " (", value, ")"));
  }

  const CallRateLimits limits_;
  RateCount resets_, idle_;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_CALL_RATE_GUARD_H_
