// Keeps a stream busy until a test opens the gate.
#ifndef COHORT_WORKER_CUDA_TESTING_STREAM_GATE_H_
#define COHORT_WORKER_CUDA_TESTING_STREAM_GATE_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Works on the fake runtime and on the real one. The destructor opens it, too.
class StreamGate {
 public:
  StreamGate() = default;
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  ~StreamGate() { Open(); }

  // Work enqueued from now on waits until the gate opens.
  cudaError_t Close(cudaStream_t stream) {
    return cudaLaunchHostFunc(stream, &StreamGate::Pass, state_);
  }
  void Open() {
    MutexLock lock(&state_->mutex);
    state_->open = true;
    state_->changed.SignalAll();
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    bool open ABSL_GUARDED_BY(mutex) = false;
  };

  static void Pass(void* argument) {
    auto* const state = static_cast<State*>(argument);
    MutexLock lock(&state->mutex);
    while (!state->open) state->changed.Wait(&state->mutex);
  }

  // The state lives for ever: the stream may reach it after the gate's destructor, or never.
  static State* NewState() {
    static Mutex* const mutex = new Mutex;
    static auto* const states = new std::vector<std::unique_ptr<State>>;
    MutexLock lock(mutex);
    return states->emplace_back(std::make_unique<State>()).get();
  }

  State* const state_ = NewState();
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_TESTING_STREAM_GATE_H_
