// The state of the fake runtime, and the common part of its functions.
#ifndef COHORT_WORKER_CUDA_TESTING_FAKE_STATE_H_
#define COHORT_WORKER_CUDA_TESTING_FAKE_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "cuda.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/cuda/testing/fake_stream.h"

namespace cohort::worker::cuda::fake {

// A range of addresses that the runtime knows.
struct Memory {
  enum class Kind {
    kDevice,  // cudaMalloc
    kPool,    // cudaMallocAsync
    kMapped,  // cuMemMap
    kPinned,  // cudaHostAlloc
  };

  bool on_device() const { return kind != Kind::kPinned; }

  Kind kind;
  int device = 0;
  size_t bytes = 0;
  // Frees the memory when it goes, if the runtime owns the memory.
  std::shared_ptr<void> holder;
};

struct Failure {
  cudaError_t error;
  int calls_before;
};

struct State {
  // Not held while waiting for a stream. Mutexes of streams and marks are acquired after it.
  Mutex mutex;

  FakeMachine machine ABSL_GUARDED_BY(mutex);
  cudaError_t sticky ABSL_GUARDED_BY(mutex) = cudaSuccess;
  std::map<std::string, std::deque<Failure>> failures ABSL_GUARDED_BY(mutex);

  std::map<cudaStream_t, std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mutex);
  // By device; created at the first use.
  std::map<int, std::shared_ptr<Stream>> default_streams ABSL_GUARDED_BY(mutex);
  // Destroyed streams that may still have work.
  std::vector<std::shared_ptr<Stream>> closed_streams ABSL_GUARDED_BY(mutex);
  std::map<cudaEvent_t, std::shared_ptr<Event>> events ABSL_GUARDED_BY(mutex);
  std::map<cudaGraph_t, std::shared_ptr<const std::vector<Work>>> graphs ABSL_GUARDED_BY(mutex);
  std::map<cudaGraphExec_t, std::shared_ptr<const std::vector<Work>>> executables
      ABSL_GUARDED_BY(mutex);

  // By first address.
  std::map<uintptr_t, Memory> memory ABSL_GUARDED_BY(mutex);
  std::map<int, size_t> used ABSL_GUARDED_BY(mutex);
  size_t pinned ABSL_GUARDED_BY(mutex) = 0;
  // Handles of physical memory (cuMem*), and reserved addresses, that were not released yet.
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<struct Physical>> physical
      ABSL_GUARDED_BY(mutex);
  std::map<uintptr_t, size_t> reserved ABSL_GUARDED_BY(mutex);

  // Devices that some thread has set as its current one.
  std::set<int> active ABSL_GUARDED_BY(mutex);

  // Streams drop their work instead of running it.
  std::atomic<bool> dropping{false};
  std::atomic<uintptr_t> last_handle{0x1000};
};

// The process's state; it lives for ever.
State& state();

// The calling thread's.
int& CurrentDevice();
cudaError_t& LastError();
// Whether the calling thread is a stream's: then it must not call the runtime.
bool& InHostFunction();

// Returns the error with which `function` must fail, or cudaSuccess.
cudaError_t InjectedError(const char* function);

// Makes a call of the runtime: runs `body` unless the call must fail, and keeps the thread's last
// error.
template <typename Body>
cudaError_t Call(const char* function, Body body) {
  cudaError_t result = InjectedError(function);
  if (result == cudaSuccess) result = body();
  if (result != cudaSuccess) LastError() = result;
  return result;
}

// Makes a call of the driver, which keeps no last error. Its results have the runtime's numbers.
template <typename Body>
CUresult DriverCall(const char* function, Body body) {
  const cudaError_t refused = InjectedError(function);
  return refused == cudaSuccess ? body() : static_cast<CUresult>(refused);
}

template <typename Handle>
Handle NewHandle() {
  return reinterpret_cast<Handle>(state().last_handle += 0x10);
}

// Returns null if there is no such stream.
std::shared_ptr<Stream> FindStream(cudaStream_t stream)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);
// Enqueues `work` on `stream`, or adds it to the stream's capture.
cudaError_t Enqueue(cudaStream_t stream, Work work);
// Waits for all work enqueued on `device` so far.
void FinishDevice(int device);

// Returns the range in which `memory` lies; null if the runtime does not know it.
const Memory* FindMemory(const void* memory, uintptr_t* begin)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);
// Whether the `bytes` end within the range in which `memory` lies. True for memory that the runtime
// does not know.
bool IsInside(const void* memory, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);
// Returns cudaErrorMemoryAllocation if the device has too little memory.
cudaError_t TakeDeviceMemory(int device, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);

}  // namespace cohort::worker::cuda::fake

#endif  // COHORT_WORKER_CUDA_TESTING_FAKE_STATE_H_
