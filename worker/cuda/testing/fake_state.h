// All that the fake runtime knows, and how each of its functions begins and ends.
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
#include "base/mutex.h"
#include "cuda.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/cuda/testing/fake_stream.h"

namespace cohort::worker::cuda::fake {

// A range of addresses that the runtime knows.
struct Memory {
  enum class Kind {
    kDevice,      // cudaMalloc
    kPool,        // cudaMallocAsync
    kMapped,      // cuMemMap
    kOpened,      // cudaIpcOpenMemHandle
    kPinned,      // cudaHostAlloc
    kRegistered,  // cudaHostRegister
  };

  bool on_device() const { return kind != Kind::kPinned && kind != Kind::kRegistered; }

  Kind kind;
  int device = 0;
  size_t bytes = 0;
  // Whose end frees it, where that is for the runtime to do.
  std::shared_ptr<void> holder;
  // What to ask the other processes to open.
  int fd = -1;
};

struct Failure {
  cudaError_t error;
  int calls_before;
};

struct State {
  // Never held while waiting for a stream. Locks of streams and marks come after it.
  Mutex mutex;

  FakeMachine machine ABSL_GUARDED_BY(mutex);
  cudaError_t sticky ABSL_GUARDED_BY(mutex) = cudaSuccess;
  std::map<std::string, std::deque<Failure>> failures ABSL_GUARDED_BY(mutex);

  std::map<cudaStream_t, std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mutex);
  // Of each device, once used.
  std::map<int, std::shared_ptr<Stream>> default_streams ABSL_GUARDED_BY(mutex);
  // Destroyed ones, which may still have work.
  std::vector<std::shared_ptr<Stream>> closed_streams ABSL_GUARDED_BY(mutex);
  std::map<cudaEvent_t, std::shared_ptr<Event>> events ABSL_GUARDED_BY(mutex);
  std::map<cudaGraph_t, std::shared_ptr<const std::vector<Work>>> graphs ABSL_GUARDED_BY(mutex);
  std::map<cudaGraphExec_t, std::shared_ptr<const std::vector<Work>>> executables
      ABSL_GUARDED_BY(mutex);

  // By first address.
  std::map<uintptr_t, Memory> memory ABSL_GUARDED_BY(mutex);
  std::map<int, size_t> used ABSL_GUARDED_BY(mutex);
  size_t pinned ABSL_GUARDED_BY(mutex) = 0;
  // Of cuMem*: physical memory (handles) and addresses reserved for it, not yet given back.
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<struct Physical>> physical
      ABSL_GUARDED_BY(mutex);
  std::map<uintptr_t, size_t> reserved ABSL_GUARDED_BY(mutex);

  // Devices that a thread has made its own.
  std::set<int> active ABSL_GUARDED_BY(mutex);

  // Streams drop their work.
  std::atomic<bool> dropping{false};
  std::atomic<uintptr_t> last_handle{0x1000};
};

// Of the process, for ever.
State& state();

// The thread's.
int& CurrentDevice();
cudaError_t& LastError();
// Whether this thread is a stream's, which must not call the runtime.
bool& InHostFunction();

// What `function` answers instead of doing its work, if it is to.
cudaError_t Refusal(const char* function);

// A call of the runtime: `body` unless it is refused; the thread's last error is kept.
template <typename Body>
cudaError_t Call(const char* function, Body body) {
  cudaError_t result = Refusal(function);
  if (result == cudaSuccess) result = body();
  if (result != cudaSuccess) LastError() = result;
  return result;
}

// A call of the driver, which keeps no last error. Its results have the runtime's numbers.
template <typename Body>
CUresult DriverCall(const char* function, Body body) {
  const cudaError_t refused = Refusal(function);
  return refused == cudaSuccess ? body() : static_cast<CUresult>(refused);
}

template <typename Handle>
Handle NewHandle() {
  return reinterpret_cast<Handle>(state().last_handle += 0x10);
}

// Null: no such stream.
std::shared_ptr<Stream> FindStream(cudaStream_t stream)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);
// Does `work` in the order of `stream`, or makes it part of what is captured there.
cudaError_t Enqueue(cudaStream_t stream, Work work);
// Until all that was enqueued on `device` so far is done.
void FinishDevice(int device);

// The range that `memory` lies in; null where the runtime knows none.
const Memory* FindMemory(const void* memory, uintptr_t* begin)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);
// A range of `bytes` that begins there and ends in the same range of memory as it begins, or in
// none.
bool IsInside(const void* memory, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);
// cudaErrorMemoryAllocation where the device has no room.
cudaError_t TakeDeviceMemory(int device, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex);

}  // namespace cohort::worker::cuda::fake

#endif  // COHORT_WORKER_CUDA_TESTING_FAKE_STATE_H_
