// A thread that calls a function at an instant, which any thread may move nearer.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_ALARM_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_ALARM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort::coordinator {

// Thread-safe. It waits on the steady clock: a jump of the wall clock must not end leases early or
// late.
class Alarm {
 public:
  // `ring` runs on the alarm's own thread and returns the instant of its next call (infinite
  // future: only after a MoveTo). Any thread may call MoveTo while it runs.
  Alarm(const Clock& clock, std::function<Instant()> ring);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Rings for the first time at once. Not thread-safe, like Stop. Errors: RESOURCE_EXHAUSTED
  // (threads).
  absl::Status Start();
  // Joins the thread; `ring` does not run afterwards. MoveTo stays allowed.
  void Stop();

  // Rings at `at` or before. One atomic read when that is planned anyway.
  void MoveTo(Instant at);

 private:
  void Run();

  const Clock& clock_;
  const std::function<Instant()> ring_;
  // Nanoseconds; written under the mutex.
  std::atomic<int64_t> planned_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_ALARM_H_
