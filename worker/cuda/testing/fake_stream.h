// Streams, events and captures of the fake runtime, as objects.
#ifndef COHORT_WORKER_CUDA_TESTING_FAKE_STREAM_H_
#define COHORT_WORKER_CUDA_TESTING_FAKE_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda::fake {

using Work = std::function<void()>;

// A point in a stream's work.
class Mark {
 public:
  void Reach();
  bool reached() const;
  void Await() const;
  // When it was reached; valid only then.
  Instant at() const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
  Instant at_ ABSL_GUARDED_BY(mutex_);
};

// The work that is enqueued during a capture; a replay runs it in the same order.
struct Capture {
  cudaStream_t origin = nullptr;
  std::vector<Work> work;
  bool invalid = false;
};

// A queue, and a thread that runs its work in order. The thread ends once the stream is closed and
// empty. No thread joins it, so that a program can end before it does.
class Stream {
 public:
  static std::shared_ptr<Stream> Start(int device);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int device() const { return device_; }
  void Push(Work work);
  // `mark` is reached exactly when the stream counts the earlier work as done.
  void Push(std::shared_ptr<Mark> mark);
  // Ends the stream once its work is done; no work follows.
  void Close();
  bool idle() const;
  bool ended() const;
  void AwaitEnd() const;
  // Waits for all work that was pushed before.
  void Finish() const;

  // Guarded by the state's mutex.
  std::shared_ptr<Capture> capture;

 private:
  // Exactly one of the two is set.
  struct Item {
    Work work;
    std::shared_ptr<Mark> mark;
  };

  explicit Stream(int device) : device_(device) {}
  void Add(Item item);
  void Run();

  const int device_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t pushed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Event {
  int device = 0;
  bool timed = false;
  // Null if it was never recorded.
  std::shared_ptr<Mark> mark;
  // Set if it was recorded during a capture of its stream.
  std::shared_ptr<Capture> capture;
};

}  // namespace cohort::worker::cuda::fake

#endif  // COHORT_WORKER_CUDA_TESTING_FAKE_STREAM_H_
