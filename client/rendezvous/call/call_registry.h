// The calls in flight of one owner, which end with it.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CALL_REGISTRY_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CALL_REGISTRY_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/threads/mutex.h"

namespace cohort::client {

class Cancellable {
 public:
  virtual ~Cancellable() = default;
  // Asks for an early end, once it has started. It still ends in its usual way, with CANCELLED, and
  // not in this call.
  virtual void Cancel() = 0;
  // The same, but an answer that is on its way is not dropped: the call then ends with it. If the
  // coordinator is silent, the end takes a second.
  virtual void AskToCancel() { Cancel(); }
};

// Thread-safe.
class CallRegistry {
 public:
  // False, and nothing is kept, after CancelAll.
  bool Add(std::shared_ptr<Cancellable> call) {
    MutexLock lock(&mutex_);
    if (closed_) return false;
    calls_.insert(std::move(call));
    return true;
  }
  void Remove(const std::shared_ptr<Cancellable>& call) {
    MutexLock lock(&mutex_);
    calls_.erase(call);
  }
  void CancelAll() {
    absl::flat_hash_set<std::shared_ptr<Cancellable>> calls;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      calls = calls_;
    }
    for (const std::shared_ptr<Cancellable>& call : calls) call->Cancel();
  }

 private:
  Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<Cancellable>> calls_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

inline absl::Status OwnerGone() {
  return absl::CancelledError("the object that made this call was destroyed");
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CALL_REGISTRY_H_
