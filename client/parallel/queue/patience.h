// How long one looks before one sleeps, and what ends a wait besides what it is for.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_PATIENCE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_PATIENCE_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "client/rendezvous/cancellation.h"

namespace cohort::parallel {

// A sleeper looks again after this time, so that a lost wake-up costs no more.
inline constexpr absl::Duration kLongestSleep = absl::Milliseconds(100);

// Of one call by one thread: everything it waits for ends by these.
class Patience {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  Patience(Instant deadline) : deadline_(deadline) {}
  Patience(absl::Duration timeout, client::Cancellation* cancellation)
      : cancellation(cancellation), timeout_(timeout) {}

  // The time begins with the first wait: most calls have none, and to look at a clock takes a third
  // of what a small value does.
  Instant deadline() const {
    if (!deadline_.has_value()) deadline_ = Clock::Steady().Now() + timeout_;
    return *deadline_;
  }

  client::Cancellation* cancellation = nullptr;

 private:
  absl::Duration timeout_;
  mutable std::optional<Instant> deadline_;
};

// Whether `done` within some microseconds of looking, after which a sleeper costs less. Does not
// spin where `parties` exceed the processors: that would keep from working the one who is waited
// for; it is offered the processor instead.
bool LookFor(absl::FunctionRef<bool()> done, uint32_t parties);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_PATIENCE_H_
