#include "client/parallel/queue/connections/connection_loop.h"

#include <utility>

namespace cohort::parallel {
namespace {

constexpr absl::Duration kLater = absl::Milliseconds(100);

}  // namespace

std::shared_ptr<ConnectionLoop> ConnectionLoop::Shared() {
  static Mutex* const mutex = new Mutex;
  static std::weak_ptr<ConnectionLoop>* const shared = new std::weak_ptr<ConnectionLoop>;
  MutexLock lock(mutex);
  std::shared_ptr<ConnectionLoop> loop = shared->lock();
  if (loop == nullptr) {
    loop = std::make_shared<ConnectionLoop>();
    *shared = loop;
  }
  return loop;
}

ConnectionLoop::ConnectionLoop() : events_("cohort-queue", kLater, [this] { RunTasks(); }) {}

void ConnectionLoop::RunLater(std::function<void()> task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  events_.SetTicking(true);
}

void ConnectionLoop::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(tasks_);
    events_.SetTicking(false);
  }
  for (const std::function<void()>& task : tasks) task();
}

}  // namespace cohort::parallel
