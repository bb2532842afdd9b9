// Time and failures of one logical call: how long each attempt may take, when to try again, and the
// error at the end. Unary calls (unary_call.h) and streams use it.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CALL_RETRIES_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CALL_RETRIES_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/connection.h"
#include "grpcpp/support/status.h"

namespace cohort::client {

// How much longer than its `wait` a call may take, so that a TIMED_OUT answer arrives with its
// diagnosis. A call that has no `wait` ends at its deadline.
inline constexpr absl::Duration kDeadlineMargin = absl::Seconds(2);
// The last attempt has this time even at the deadline, so that the error has the reason.
inline constexpr absl::Duration kShortestAttempt = absl::Milliseconds(100);
// The coordinator parks no call longer than this.
inline constexpr absl::Duration kMaxWait = absl::Hours(1);

class Interruption;

struct CallLimits {
  std::string what;  // for texts, such as barrier "step" #812
  Instant deadline;
  // Requests that have a `wait` get the time that is left until here; InfinitePast: they get none.
  Instant wait_until = absl::InfiniteFuture();
  bool repeat = true;
  bool use_framed_rpc = true;  // false: by gRPC alone
  // Called before each pause, with the last error and the length of the pause, on the thread that
  // got the error.
  std::function<void(const grpc::Status&, absl::Duration)> on_repeat;
  // Once it is raised, the call is not repeated and ends with its reason. May be null.
  std::shared_ptr<const Interruption> interruption;
};

// Pauses that grow from the shortest to the longest, each with 20 % jitter. Confined to one thread
// at a time.
class Backoff {
 public:
  Backoff(absl::Duration shortest, absl::Duration longest)
      : shortest_(shortest), longest_(longest) {}
  absl::Duration Next();
  void Reset() { next_ = absl::ZeroDuration(); }

 private:
  absl::Duration shortest_;
  absl::Duration longest_;
  absl::Duration next_;
};

// Whether the coordinator cannot have refused: it was away, or the connection broke.
bool IsAway(const grpc::Status& status);
// Whether it is there, and takes nothing new.
bool IsDraining(const grpc::Status& status);

// Confined to one thread at a time.
class CallRetries {
 public:
  CallRetries(const ConnectionOptions& connection, CallLimits limits);

  struct Attempt {
    absl::Duration timeout;
    absl::Duration wait;  // of the request; zero: none
  };
  // Begins an attempt, whose times are shorter than those of the one before.
  Attempt Begin();
  // To the call's deadline.
  absl::Duration time_left() const;
  // Whether an attempt may use framed RPC in place of gRPC.
  bool use_framed_rpc() const { return limits_.use_framed_rpc; }

  // The pause before the next attempt; absent when the call has ended, with `result`.
  std::optional<absl::Duration> Judge(const grpc::Status& status, absl::Status* result);

 private:
  absl::Status Refused(const grpc::Status& status) const;
  absl::Status GaveUp(const grpc::Status& last) const;

  const std::string& address_;
  const CallLimits limits_;
  const Instant started_;
  Backoff backoff_;
  int count_ = 0;
};

// Lets threads pause, and ends all pauses, now and later, for one reason. Thread-safe.
class Interruption {
 public:
  // OK when `pause` passed; the reason when interrupted or cancelled before.
  absl::Status Sleep(absl::Duration pause,
                     const CallCancellations& cancellations = CallCancellations(nullptr));
  void Raise(absl::Status reason);
  // OK until raised.
  absl::Status reason() const;

 private:
  mutable Mutex mutex_;
  CondVar raised_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CALL_RETRIES_H_
