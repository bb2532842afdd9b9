// How one thread ends the waits of another.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CANCELLATION_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CANCELLATION_H_

#include <array>
#include <functional>
#include <optional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/threads/mutex.h"

namespace cohort::client {

// Ends the calls that it was given to, now and later, with its reason. Thread-safe.
class Cancellation {
 public:
  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // `reason` is an error; the first reason stays.
  void Cancel(const absl::Status& reason);
  // OK: it is not cancelled.
  absl::Status reason() const;

  // Runs `on_cancel` when it is cancelled, at once if it has been; on the thread that cancels.
  // `on_cancel` must not block, nor use the cancellation. Once this is destroyed, it does not run.
  class Listener {
   public:
    Listener(Cancellation& cancellation, std::function<void(const absl::Status& reason)> on_cancel);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    friend class Cancellation;
    Cancellation& cancellation_;
    const std::function<void(const absl::Status&)> on_cancel_;
  };

 private:
  mutable Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  std::set<const Listener*> listeners_ ABSL_GUARDED_BY(mutex_);
};

// While it lives, `cancellation` ends each call to the coordinator or to a worker daemon that this
// thread makes, as the call's own cancellation does; collectives go on until their group is aborted.
// It must be destroyed on the same thread.
//
//   Cancellation cancellation;  // another thread cancels it
//   const CancellationScope scope(cancellation);
//   absl::StatusOr<std::string> object = group.Receive(0);
class CancellationScope {
 public:
  explicit CancellationScope(Cancellation& cancellation);
  ~CancellationScope();
  CancellationScope(const CancellationScope&) = delete;
  CancellationScope& operator=(const CancellationScope&) = delete;

  // The cancellation of this thread's innermost scope, or null.
  static Cancellation* current();

 private:
  Cancellation* const outer_;
};

// The cancellations of one call: its own, which may be null, and that of the thread's scope.
class CallCancellations {
 public:
  explicit CallCancellations(Cancellation* own) : all_{own, CancellationScope::current()} {}

  // OK: none has ended the call.
  absl::Status reason() const;

  // Runs `on_cancel` as Cancellation::Listener does, once for each that is cancelled.
  class Listener {
   public:
    Listener(const CallCancellations& cancellations, const std::function<void()>& on_cancel);

   private:
    std::optional<Cancellation::Listener> listeners_[2];
  };

 private:
  const std::array<Cancellation*, 2> all_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CANCELLATION_H_
