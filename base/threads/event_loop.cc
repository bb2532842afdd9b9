#include "base/threads/event_loop.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/threads/thread.h"

namespace cohort {
namespace {

constexpr int kMaxEvents = 64;
// A handler whose looks find nothing has one after each 2^8 of its events.
constexpr int kMostLooksInVain = 8;
// Longer than the thread that sends the next event takes for it. A thread that sleeps has its turn
// before those that work, and one that yields has it after them.
constexpr absl::Duration kOtherWork = absl::Microseconds(500);

}  // namespace

EventLoop::EventLoop(const std::string& name, absl::Duration tick, std::function<void()> on_tick)
    : name_(name), tick_(tick), on_tick_(std::move(on_tick)) {
  Start().IgnoreError();
}

EventLoop::~EventLoop() {
  std::thread ended;
  {
    MutexLock lock(&mutex_);
    stop_.store(true);
    ended = std::move(thread_);
  }
  if (!ended.joinable()) return;
  Wake();
  ended.join();
}

absl::Status EventLoop::Start() {
  MutexLock lock(&mutex_);
  return StartLocked();
}

absl::Status EventLoop::StartLocked() {
  if (thread_.joinable() || stop_.load()) return absl::OkStatus();
  if (!epoll_.is_open()) epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!wake_.is_open()) wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  if (!epoll_.is_open() || !wake_.is_open() ||
      (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0 && errno != EEXIST)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start thread ", name_,
                     ": its descriptors: ", absl::ErrnoToStatus(errno, "").message()));
  }
  // The process's signals are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::StatusOr<std::thread> thread = StartThread(name_, [this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread.ok()) thread_ = *std::move(thread);
  return thread.status();
}

bool EventLoop::Add(int fd, uint32_t events, std::shared_ptr<Handler> handler) {
  {
    MutexLock lock(&mutex_);
    if (!StartLocked().ok()) return false;
    handlers_[fd] = std::move(handler);
  }
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return true;
  MutexLock lock(&mutex_);
  handlers_.erase(fd);
  return false;
}

void EventLoop::Modify(int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Remove(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::shared_ptr<Handler> dropped;  // outside of the lock
  MutexLock lock(&mutex_);
  auto it = handlers_.find(fd);
  if (it == handlers_.end()) return;
  dropped = std::move(it->second);
  handlers_.erase(it);
}

void EventLoop::Post(std::function<void()> task) {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
    if (!StartLocked().ok()) return;
  }
  if (first && !InLoop()) Wake();
}

void EventLoop::PostAt(Instant at, std::function<void()> task) {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = later_.emplace(at, std::move(task)) == later_.begin();
    if (!StartLocked().ok()) return;
  }
  if (first && !InLoop()) Wake();
}

void EventLoop::SetTicking(bool ticking) {
  if (ticking_.exchange(ticking) == ticking || !ticking) return;
  // A loop that starts now looks at it by itself.
  if (Start().ok()) Wake();
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // Full means that it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

int EventLoop::MillisecondsToSleep(bool ticking) {
  const absl::Duration most = ticking ? tick_ : absl::InfiniteDuration();
  MutexLock lock(&mutex_);
  if (!tasks_.empty()) return 0;  // posted by tasks
  absl::Duration left = most;
  if (!later_.empty()) {
    left = std::min(left, later_.begin()->first - Clock::Steady().Now());
    left = absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Milliseconds(1));
  }
  return left == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(left));
}

void EventLoop::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(tasks_);
    if (!later_.empty()) {
      const Instant now = Clock::Steady().Now();
      while (!later_.empty() && later_.begin()->first <= now) {
        tasks.push_back(std::move(later_.begin()->second));
        later_.erase(later_.begin());
      }
    }
  }
  for (std::function<void()>& task : tasks) task();
}

int EventLoop::LookForMore(Handler& last, epoll_event* events) {
  const absl::Duration most = absl::Nanoseconds(busy_wait_.load(std::memory_order_relaxed));
  if (most == absl::ZeroDuration()) return 0;
  if (last.looks_to_skip_ > 0) {
    --last.looks_to_skip_;
    return 0;
  }
  Instant now = Clock::Steady().Now();
  const Instant end = now + most;
  bool has_other_work = false;
  int count = 0;
  do {
    const Instant before = now;
    sched_yield();
    count = epoll_wait(epoll_.get(), events, kMaxEvents, 0);
    now = Clock::Steady().Now();
    has_other_work = now - before > kOtherWork;
  } while (count == 0 && now < end);
  last.looks_in_vain_ = count > 0 ? 0 : std::min(last.looks_in_vain_ + 1, kMostLooksInVain);
  if (has_other_work) last.looks_in_vain_ = kMostLooksInVain;
  last.looks_to_skip_ = (1 << last.looks_in_vain_) - 1;
  return count;
}

void EventLoop::Run() {
  running_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::array<epoll_event, kMaxEvents> events;
  Instant next_tick = absl::InfinitePast();
  std::shared_ptr<Handler> handler;  // of the last event
  while (!stop_.load()) {
    const bool ticking = ticking_.load() && tick_ < absl::InfiniteDuration();
    const int sleep = MillisecondsToSleep(ticking);
    int count = handler != nullptr && sleep != 0 ? LookForMore(*handler, events.data()) : 0;
    handler.reset();
    if (count <= 0) count = epoll_wait(epoll_.get(), events.data(), kMaxEvents, sleep);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_.get()) {
        uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
        continue;
      }
      {
        MutexLock lock(&mutex_);
        auto it = handlers_.find(fd);
        handler = it != handlers_.end() ? it->second : nullptr;
      }
      if (handler != nullptr) handler->OnEvents(events[i].events);
    }
    RunTasks();
    if (!ticking) continue;
    const Instant now = Clock::Steady().Now();
    if (now < next_tick) continue;
    next_tick = now + tick_;
    on_tick_();
  }
  RunTasks();
}

}  // namespace cohort
