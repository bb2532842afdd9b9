#include "worker/group/membership/watch_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/threads/thread.h"

namespace cohort::worker {
namespace {

// Marks the descriptor that ends the thread; watched descriptors are numbered from 1.
constexpr uint64_t kStop = 0;
constexpr int kEvents = 16;

}  // namespace

absl::StatusOr<std::shared_ptr<WatchThread>> WatchThread::Shared() {
  static Mutex* const mutex = new Mutex();
  static auto* const shared = new std::weak_ptr<WatchThread>();
  MutexLock lock(mutex);
  std::shared_ptr<WatchThread> watch_thread = shared->lock();
  if (watch_thread != nullptr) return watch_thread;
  UniqueFd poll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kStop;
  if (poll.get() < 0 || stop.get() < 0 ||
      epoll_ctl(poll.get(), EPOLL_CTL_ADD, stop.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "watching other processes");
  }
  watch_thread = absl::WrapUnique(new WatchThread(std::move(poll), std::move(stop)));
  COHORT_ASSIGN_OR_RETURN(watch_thread->thread_,
                          StartThread("cohort-watch", [raw = watch_thread.get()] { raw->Run(); }));
  *shared = watch_thread;
  return watch_thread;
}

WatchThread::WatchThread(UniqueFd poll, UniqueFd stop)
    : poll_(std::move(poll)), stop_(std::move(stop)) {}

WatchThread::~WatchThread() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

WatchThread::Watched WatchThread::Watch(int fd, std::function<bool()> on_readable) {
  MutexLock lock(&mutex_);
  const Watched watched = ++last_;
  entries_[watched] = {fd, std::move(on_readable)};
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = watched;
  epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event);
  return watched;
}

void WatchThread::Unwatch(Watched watched) {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(watched);
  if (entry == entries_.end()) return;
  epoll_ctl(poll_.get(), EPOLL_CTL_DEL, entry->second.fd, nullptr);
  entries_.erase(entry);
}

void WatchThread::Run() {
  epoll_event events[kEvents];
  while (true) {
    const int count = epoll_wait(poll_.get(), events, kEvents, -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStop) return;
      // Held while the callback runs, so that Unwatch waits for it.
      MutexLock lock(&mutex_);
      const auto entry = entries_.find(events[i].data.u64);
      if (entry == entries_.end() || entry->second.on_readable()) continue;
      epoll_ctl(poll_.get(), EPOLL_CTL_DEL, entry->second.fd, nullptr);
    }
  }
}

}  // namespace cohort::worker
