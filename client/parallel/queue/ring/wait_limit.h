// How long a thread spins before it sleeps, and the deadline and cancellation that end its wait.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_WAIT_LIMIT_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_WAIT_LIMIT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::parallel {

// A sleeping thread looks again after this time, so a lost wake-up costs no more.
inline constexpr absl::Duration kLongestSleep = absl::Milliseconds(100);

// Ends all waits of one call by one thread.
class WaitLimit {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  WaitLimit(Instant deadline, client::Cancellation* cancellation = nullptr)
      : cancellation_(cancellation), deadline_(deadline) {}
  WaitLimit(absl::Duration timeout, client::Cancellation* cancellation)
      : cancellation_(cancellation), timeout_(timeout) {}

  // The timeout begins with the first wait. Most calls do not wait, and reading a clock takes a
  // third of the time of a small value.
  Instant deadline() const {
    if (!deadline_.has_value()) deadline_ = Clock::Steady().Now() + timeout_;
    return *deadline_;
  }

  // Why the call was cancelled, or OK.
  absl::Status Cancelled() const {
    return cancellation_ == nullptr ? absl::OkStatus() : cancellation_->reason();
  }
  // Runs `on_cancel` if the call is cancelled while the result lives, as Cancellation::Listener.
  std::optional<client::Cancellation::Listener> OnCancel(
      std::function<void(const absl::Status& reason)> on_cancel) const {
    if (cancellation_ == nullptr) return std::nullopt;
    return std::optional<client::Cancellation::Listener>(std::in_place, *cancellation_,
                                                         std::move(on_cancel));
  }

 private:
  client::Cancellation* cancellation_ = nullptr;
  absl::Duration timeout_;
  mutable std::optional<Instant> deadline_;
};

// Spins for some microseconds, after which sleeping costs less, and returns whether `done` became
// true. If `parties` exceed the processors, spinning would stop the awaited thread from working.
// Then it offers the processor instead.
bool LookFor(absl::FunctionRef<bool()> done, uint32_t parties);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_WAIT_LIMIT_H_
