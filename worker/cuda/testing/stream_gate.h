// Keeps a stream busy for as long as a test wants.
#ifndef COHORT_WORKER_CUDA_TESTING_STREAM_GATE_H_
#define COHORT_WORKER_CUDA_TESTING_STREAM_GATE_H_

#include <memory>

#include "base/mutex.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// On the fake runtime and on the real one. Opens at its end, too.
class StreamGate {
 public:
  StreamGate() = default;
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  ~StreamGate() { Open(); }

  // What is enqueued from now on waits until the gate opens.
  cudaError_t Close(cudaStream_t stream) {
    // The stream may come here after the gate's end.
    auto* const state = new std::shared_ptr<State>(state_);
    const cudaError_t result = cudaLaunchHostFunc(stream, &StreamGate::Pass, state);
    if (result != cudaSuccess) delete state;
    return result;
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
    const std::unique_ptr<std::shared_ptr<State>> state(
        static_cast<std::shared_ptr<State>*>(argument));
    MutexLock lock(&(*state)->mutex);
    while (!(*state)->open) (*state)->changed.Wait(&(*state)->mutex);
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_TESTING_STREAM_GATE_H_
