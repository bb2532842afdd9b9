// Ends streams whose clients send or take nothing.
#ifndef COHORT_WORKER_DAEMON_LIMITS_IDLE_STREAM_WATCH_H_
#define COHORT_WORKER_DAEMON_LIMITS_IDLE_STREAM_WATCH_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "worker/daemon/limits/payer_counts.h"

namespace cohort::worker {

// One thread for all streams, which sleeps while there is no stream. Thread-safe.
class IdleStreamWatch {
 public:
  class Stream {
   public:
    virtual ~Stream() = default;
    // Called on the watch's thread when the client has sent or taken nothing for `limit`.
    virtual void OnIdle(absl::Duration limit) = 0;

   protected:
    // Notes that the client has sent or taken something.
    void Touch() { last_.store(Now(), std::memory_order_relaxed); }

   private:
    friend class IdleStreamWatch;
    static int64_t Now() { return absl::ToUnixNanos(Clock::Steady().Now()); }
    std::atomic<int64_t> last_{Now()};
  };

  // At most `max_unnamed` streams at a time have not named their session yet. No session's share of
  // calls counts those. Nor can one identity or tenant take all of them (payer_counts.h).
  IdleStreamWatch(absl::Duration idle_limit, int max_unnamed);

  // `payer`: the client. Errors: RESOURCE_EXHAUSTED (unnamed streams, threads).
  absl::Status Add(const std::shared_ptr<Stream>& stream, const Payer& payer);
  // Adds a stream that a session's share counts from the start. Errors: RESOURCE_EXHAUSTED
  // (threads).
  absl::Status AddNamed(const std::shared_ptr<Stream>& stream);
  // Notes that a session's share now counts the stream.
  void Name(Stream* stream);
  void Remove(Stream* stream);

 private:
  struct Entry {
    std::weak_ptr<Stream> stream;
    bool named = false;
    Payer payer{};  // until it is named
  };

  // Counts the entry no longer as one that has not named its session.
  void SetNamed(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTick();

  const absl::Duration idle_limit_;
  const int max_unnamed_;
  Mutex mutex_;
  std::map<Stream*, Entry> streams_ ABSL_GUARDED_BY(mutex_);
  int unnamed_ ABSL_GUARDED_BY(mutex_) = 0;
  PayerCounts unnamed_by_payer_ ABSL_GUARDED_BY(mutex_);
  EventLoop loop_;  // last: its thread uses the rest
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_LIMITS_IDLE_STREAM_WATCH_H_
