#include "client/parallel/queue/queue_loop.h"

#include <utility>

namespace cohort::parallel {
namespace {

constexpr absl::Duration kLater = absl::Milliseconds(100);

}  // namespace

std::shared_ptr<QueueLoop> QueueLoop::Shared() {
  static Mutex* const mutex = new Mutex;
  static std::weak_ptr<QueueLoop>* const shared = new std::weak_ptr<QueueLoop>;
  MutexLock lock(mutex);
  std::shared_ptr<QueueLoop> loop = shared->lock();
  if (loop == nullptr) {
    loop = std::make_shared<QueueLoop>();
    *shared = loop;
  }
  return loop;
}

QueueLoop::QueueLoop() : events_("cohort-queue", kLater, [this] { RunTasks(); }) {}

void QueueLoop::RunLater(std::function<void()> task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  events_.SetTicking(true);
}

void QueueLoop::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(tasks_);
    events_.SetTicking(false);
  }
  for (const std::function<void()>& task : tasks) task();
}

}  // namespace cohort::parallel
