#include "worker/cuda/testing/fake_stream.h"

#include <utility>

#include "worker/cuda/testing/fake_state.h"

namespace cohort::worker::cuda::fake {

void Mark::Reach() {
  MutexLock lock(&mutex_);
  reached_ = true;
  at_ = Clock::Steady().Now();
  changed_.SignalAll();
}

bool Mark::reached() const {
  MutexLock lock(&mutex_);
  return reached_;
}

void Mark::Await() const {
  MutexLock lock(&mutex_);
  while (!reached_) changed_.Wait(&mutex_);
}

Instant Mark::at() const {
  MutexLock lock(&mutex_);
  return at_;
}

Stream::Stream(int device) : device_(device), thread_([this] { Run(); }) {}

Stream::~Stream() {
  Close();
  thread_.join();
}

void Stream::Push(Work work) {
  MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
  ++pushed_;
  changed_.SignalAll();
}

void Stream::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  changed_.SignalAll();
}

bool Stream::idle() const {
  MutexLock lock(&mutex_);
  return done_ == pushed_;
}

bool Stream::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

void Stream::Finish() const {
  MutexLock lock(&mutex_);
  const int64_t target = pushed_;
  while (done_ < target) changed_.Wait(&mutex_);
}

void Stream::Run() {
  for (;;) {
    Work work;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !closed_) changed_.Wait(&mutex_);
      if (queue_.empty()) {
        ended_ = true;
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
    work = nullptr;
    MutexLock lock(&mutex_);
    ++done_;
    changed_.SignalAll();
  }
}

}  // namespace cohort::worker::cuda::fake
