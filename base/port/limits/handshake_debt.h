// Sums the processor time that TLS handshakes of one address have cost in vain.
//
// One thread makes the handshakes of all clients. An address whose handshakes never succeed, or lead
// to no call, would keep the others waiting. So their time is a debt of the address, which shrinks
// at a fixed rate. While it is too high, the listener refuses connections of the address.
//
//   HandshakeDebt debt(limits);
//   debt.Add(spent, now);          // a handshake has failed, or succeeded
//   debt.Forgive(spent);           // a call has come after it
//   if (debt.TooHigh(now)) ...     // refuse the connection
#ifndef COHORT_BASE_PORT_LIMITS_HANDSHAKE_DEBT_H_
#define COHORT_BASE_PORT_LIMITS_HANDSHAKE_DEBT_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort {

struct FailedHandshakeLimits {
  // The debt shrinks by this many seconds each second, so the failed handshakes of one address take
  // at most this share of the thread's time for long.
  double share = 0.2;
  // The listener refuses connections while the debt is above this. A handshake takes the server
  // about a millisecond, so a thousand ranks of one address with wrong certificates may fail once
  // each.
  absl::Duration burst = absl::Seconds(1);
};

// Thread-compatible.
class HandshakeDebt {
 public:
  explicit HandshakeDebt(const FailedHandshakeLimits& limits) : limits_(limits) {}

  // A handshake took `spent`. The debt stays at twice the burst at most, so an
  // address is never refused for long after its last failure.
  void Add(absl::Duration spent, Instant now) {
    paid_at_ = std::min(std::max(paid_at_, now) + spent / limits_.share,
                        now + 2 * limits_.burst / limits_.share);
  }
  // Takes back an earlier Add.
  void Forgive(absl::Duration spent) { paid_at_ -= spent / limits_.share; }
  absl::Duration At(Instant now) const {
    return std::max(paid_at_ - now, absl::ZeroDuration()) * limits_.share;
  }
  bool TooHigh(Instant now) const { return At(now) > limits_.burst; }
  // When nothing is left of it.
  Instant paid_at() const { return paid_at_; }

 private:
  const FailedHandshakeLimits limits_;
  Instant paid_at_ = absl::InfinitePast();
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_LIMITS_HANDSHAKE_DEBT_H_
