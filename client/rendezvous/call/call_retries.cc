#include "client/rendezvous/call/call_retries.h"

#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"

namespace cohort::client {

absl::Duration Backoff::Next() {
  next_ = next_ == absl::ZeroDuration() ? shortest_ : std::min(next_ * 2, longest_);
  absl::InsecureBitGen random;
  return next_ * absl::Uniform(random, 0.8, 1.2);
}

bool IsAway(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return true;
  // A coordinator that shuts down ends requests that reached it too late in this way, in gRPC's own
  // words.
  if (status.error_code() == grpc::StatusCode::CANCELLED && status.error_message() == "CANCELLED") {
    return true;
  }
  // A connection that breaks between two frames of an answer is reported this way.
  return status.error_code() == grpc::StatusCode::UNKNOWN &&
         absl::StrContains(status.error_message(), "Stream removed");
}

bool IsDraining(const grpc::Status& status) {
  return absl::StrContains(status.error_message(), "draining");
}

CallRetries::CallRetries(const ConnectionOptions& connection, CallLimits limits)
    : address_(connection.address),
      limits_(std::move(limits)),
      started_(Clock::Steady().Now()),
      backoff_(connection.min_backoff, connection.max_backoff) {}

absl::Duration CallRetries::time_left() const {
  return std::max(limits_.deadline - Clock::Steady().Now(), absl::ZeroDuration());
}

CallRetries::Attempt CallRetries::Begin() {
  ++count_;
  const Instant now = Clock::Steady().Now();
  Attempt attempt;
  attempt.timeout = std::max(limits_.deadline - now, kShortestAttempt);
  if (limits_.wait_until > absl::InfinitePast()) {
    const Instant until = std::min(limits_.wait_until, limits_.deadline);
    attempt.wait = std::clamp(until - now, absl::Milliseconds(1), kMaxWait);
  }
  return attempt;
}

std::optional<absl::Duration> CallRetries::Judge(const grpc::Status& status, absl::Status* result) {
  if (IsAway(status) && limits_.repeat) {
    if (limits_.interruption != nullptr) *result = limits_.interruption->reason();
    if (!result->ok()) return std::nullopt;
    const absl::Duration left = limits_.deadline - Clock::Steady().Now();
    if (left > absl::ZeroDuration()) {
      const absl::Duration pause = std::min(backoff_.Next(), left);
      if (limits_.on_repeat) limits_.on_repeat(status, pause);
      return pause;
    }
  }
  // The coordinator answers within `wait`. If no answer came within the margin after it either, the
  // coordinator is away.
  if (IsAway(status) || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    *result = GaveUp(status);
  } else {
    *result = Refused(status);
  }
  return std::nullopt;
}

absl::Status CallRetries::Refused(const grpc::Status& status) const {
  // No coordinator sends either; gRPC reports HTTP's errors in such words.
  const bool foreign =
      status.error_code() == grpc::StatusCode::UNIMPLEMENTED ||
      absl::StrContains(status.error_message(), "Received http2 header with status");
  if (!foreign) return FromGrpcStatus(status);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("the server at ", address_,
                                   " is no Cohort coordinator, or one that does not know ",
                                   limits_.what, status.error_message().empty() ? "" : ": ",
                                   status.error_message().substr(0, 512)));
}

absl::Status CallRetries::GaveUp(const grpc::Status& last) const {
  // A coordinator that answers so is there, and takes no new calls.
  const bool drains = IsDraining(last);
  return absl::UnavailableError(absl::StrCat(
      "coordinator at ", address_, drains ? " is draining: " : " is away: ", limits_.what,
      " gave up after ",
      absl::FormatDuration(absl::Trunc(Clock::Steady().Now() - started_, absl::Milliseconds(1))),
      " and ", count_, count_ == 1 ? " attempt" : " attempts",
      "; the last: ", last.error_message().substr(0, 512)));
}

absl::Status Interruption::Sleep(absl::Duration pause, const CallCancellations& cancellations) {
  const Instant until = Clock::Steady().Now() + pause;
  bool cancelled = false;  // with the mutex
  const CallCancellations::Listener listener(cancellations, [&] {
    MutexLock lock(&mutex_);
    cancelled = true;
    raised_.SignalAll();
  });
  {
    MutexLock lock(&mutex_);
    while (reason_.ok() && !cancelled) {
      const absl::Duration left = until - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) return absl::OkStatus();
      raised_.WaitWithTimeout(&mutex_, left);
    }
    if (!reason_.ok()) return reason_;
  }
  return cancellations.reason();
}

absl::Status Interruption::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

void Interruption::Raise(absl::Status reason) {
  MutexLock lock(&mutex_);
  if (reason_.ok()) reason_ = std::move(reason);
  raised_.SignalAll();
}

}  // namespace cohort::client
