// One thread that waits for many file descriptors.
#ifndef COHORT_BASE_THREADS_EVENT_LOOP_H_
#define COHORT_BASE_THREADS_EVENT_LOOP_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"

namespace cohort {

// Thread-safe.
class EventLoop {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // Runs on the loop's thread. `events` are epoll's, and may be those of an earlier descriptor
    // with the same number: the handler trusts only the result of its read or write.
    virtual void OnEvents(uint32_t events) = 0;

   private:
    friend class EventLoop;
    // Looks after its events, in a row, that found nothing, and how many are left out now. It has
    // to show that it is used often first.
    int looks_in_vain_ = 4, looks_to_skip_ = 15;
  };

  // `on_tick` runs about every `tick` on the loop's thread while `ticking` is set. Tries Start.
  explicit EventLoop(const std::string& name, absl::Duration tick = absl::InfiniteDuration(),
                     std::function<void()> on_tick = nullptr);
  // Ends the thread after the tasks it has; must not be called on it. Handlers are dropped,
  // descriptors are not closed.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Starts the loop's thread unless it runs. Add, Post and SetTicking try this again while it does
  // not, and tasks wait until it does. Errors: RESOURCE_EXHAUSTED (threads, descriptors).
  absl::Status Start();

  // Holds `handler` until Remove. False when the system refuses.
  bool Add(int fd, uint32_t events, std::shared_ptr<Handler> handler);
  void Modify(int fd, uint32_t events);
  // After this the handler is not called for events that are not being handled yet. Before close.
  void Remove(int fd);
  // Runs `task` on the loop's thread, after those before it.
  void Post(std::function<void()> task);
  // The same, not before `at`, and up to a millisecond later. A loop that ends drops the task.
  void PostAt(Instant at, std::function<void()> task);
  // After events, the loop looks for more for up to `most` before it sleeps, so that the next event
  // need not wake it. After events of a handler for which that finds nothing, it looks half as
  // often each time; and seldom while other threads need the processor.
  void SetBusyWait(absl::Duration most) { busy_wait_.store(absl::ToInt64Nanoseconds(most)); }
  bool InLoop() const {
    return std::this_thread::get_id() == running_.load(std::memory_order_relaxed);
  }
  void SetTicking(bool ticking);

 private:
  absl::Status StartLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  void Wake();
  // How long the loop may sleep, for epoll_wait.
  int MillisecondsToSleep(bool ticking);
  void RunTasks();
  // Looks for events that follow those of `last`. Returns how many there are.
  int LookForMore(Handler& last, epoll_event* events);

  const std::string name_;
  // Opened before the thread starts, and never changed afterwards.
  UniqueFd epoll_;
  UniqueFd wake_;
  const absl::Duration tick_;
  const std::function<void()> on_tick_;
  std::atomic<bool> ticking_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> busy_wait_{0};  // nanoseconds
  Mutex mutex_;
  absl::flat_hash_map<int, std::shared_ptr<Handler>> handlers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::multimap<Instant, std::function<void()>> later_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::thread::id> running_{};  // the thread's, once it runs
};

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_EVENT_LOOP_H_
