#include "base/lane/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/clock.h"

namespace cohort::lane {
namespace {

constexpr int kMaxEvents = 64;

}  // namespace

EventLoop::EventLoop(const std::string& name, absl::Duration tick, std::function<void()> on_tick)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      tick_(tick),
      on_tick_(std::move(on_tick)) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = wake_;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  // The process's signals are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

EventLoop::~EventLoop() {
  stop_.store(true);
  Wake();
  thread_.join();
  close(wake_);
  close(epoll_);
}

bool EventLoop::Add(int fd, uint32_t events, std::shared_ptr<Handler> handler) {
  {
    MutexLock lock(&mutex_);
    handlers_[fd] = std::move(handler);
  }
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  MutexLock lock(&mutex_);
  handlers_.erase(fd);
  return false;
}

void EventLoop::Modify(int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Remove(int fd) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
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
  }
  if (first && !InLoop()) Wake();
}

void EventLoop::SetTicking(bool ticking) {
  if (ticking_.exchange(ticking) != ticking && ticking) Wake();
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // Full means that it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

bool EventLoop::HasTasks() {
  MutexLock lock(&mutex_);
  return !tasks_.empty();
}

void EventLoop::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(tasks_);
  }
  for (std::function<void()>& task : tasks) task();
}

void EventLoop::Run() {
  std::array<epoll_event, kMaxEvents> events;
  Instant next_tick = absl::InfinitePast();
  while (!stop_.load()) {
    const bool ticking = ticking_.load() && tick_ < absl::InfiniteDuration();
    int timeout = ticking ? static_cast<int>(absl::ToInt64Milliseconds(tick_)) : -1;
    if (HasTasks()) timeout = 0;  // posted by tasks
    const int count = epoll_wait(epoll_, events.data(), kMaxEvents, timeout);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_) {
        uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t got = read(wake_, &ignored, sizeof(ignored));
        continue;
      }
      std::shared_ptr<Handler> handler;
      {
        MutexLock lock(&mutex_);
        auto it = handlers_.find(fd);
        if (it != handlers_.end()) handler = it->second;
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

}  // namespace cohort::lane
