#include "client/parallel/queue/queue_loop.h"

#include "base/mutex.h"

namespace cohort::parallel {

std::shared_ptr<lane::EventLoop> QueueLoop() {
  static Mutex* const mutex = new Mutex;
  static std::weak_ptr<lane::EventLoop>* const shared = new std::weak_ptr<lane::EventLoop>;
  MutexLock lock(mutex);
  std::shared_ptr<lane::EventLoop> loop = shared->lock();
  if (loop == nullptr) {
    loop = std::make_shared<lane::EventLoop>("cohort-queue");
    *shared = loop;
  }
  return loop;
}

}  // namespace cohort::parallel
