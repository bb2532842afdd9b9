#include "worker/cuda/testing/fake_stream.h"

#include <cstdlib>
#include <utility>

#include "base/threads/thread.h"
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

std::shared_ptr<Stream> Stream::Start(int device) {
  std::shared_ptr<Stream> stream(new Stream(device));
  const absl::Status started = StartDetachedThread("fake-stream", [stream] { stream->Run(); });
  if (!started.ok()) std::abort();
  return stream;
}

void Stream::Push(Work work) { Add({std::move(work), nullptr}); }

void Stream::Push(std::shared_ptr<Mark> mark) { Add({nullptr, std::move(mark)}); }

void Stream::Add(Item item) {
  MutexLock lock(&mutex_);
  queue_.push_back(std::move(item));
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

void Stream::AwaitEnd() const {
  MutexLock lock(&mutex_);
  while (!ended_) changed_.Wait(&mutex_);
}

void Stream::Finish() const {
  MutexLock lock(&mutex_);
  const int64_t target = pushed_;
  while (done_ < target) changed_.Wait(&mutex_);
}

void Stream::Run() {
  for (;;) {
    Item item;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !closed_) changed_.Wait(&mutex_);
      if (queue_.empty()) {
        ended_ = true;
        changed_.SignalAll();
        return;
      }
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    if (item.work != nullptr) item.work();
    item.work = nullptr;
    MutexLock lock(&mutex_);
    ++done_;
    if (item.mark != nullptr) item.mark->Reach();
    changed_.SignalAll();
  }
}

}  // namespace cohort::worker::cuda::fake
