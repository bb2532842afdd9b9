#include "worker/cuda/testing/fake_state.h"

#include <algorithm>
#include <iterator>

namespace cohort::worker::cuda::fake {

State& state() {
  static State* const state = new State;
  return *state;
}

int& CurrentDevice() {
  thread_local int device = 0;
  return device;
}

cudaError_t& LastError() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

bool& InHostFunction() {
  thread_local bool inside = false;
  return inside;
}

cudaError_t InjectedError(const char* function) {
  if (InHostFunction()) return cudaErrorNotPermitted;
  MutexLock lock(&state().mutex);
  if (state().machine.missing != cudaSuccess) return state().machine.missing;
  if (state().machine.devices == 0) return cudaErrorNoDevice;
  if (state().sticky != cudaSuccess) return state().sticky;
  const auto failures = state().failures.find(function);
  if (failures == state().failures.end()) return cudaSuccess;
  Failure& next = failures->second.front();
  if (next.calls_before-- > 0) return cudaSuccess;
  const cudaError_t error = next.error;
  failures->second.pop_front();
  if (failures->second.empty()) state().failures.erase(failures);
  return error;
}

std::shared_ptr<Stream> FindStream(cudaStream_t stream) {
  // The fake runtime treats all three default streams as one.
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    std::shared_ptr<Stream>& found = state().default_streams[CurrentDevice()];
    if (found == nullptr) found = Stream::Start(CurrentDevice());
    return found;
  }
  const auto found = state().streams.find(stream);
  return found == state().streams.end() ? nullptr : found->second;
}

cudaError_t Enqueue(cudaStream_t stream, Work work) {
  MutexLock lock(&state().mutex);
  const std::shared_ptr<Stream> found = FindStream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (found->capture != nullptr) {
    if (found->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    found->capture->work.push_back(std::move(work));
    return cudaSuccess;
  }
  found->Push(std::move(work));
  return cudaSuccess;
}

void FinishDevice(int device) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(&state().mutex);
    for (const auto& [handle, stream] : state().streams) streams.push_back(stream);
    for (const auto& [number, stream] : state().default_streams) streams.push_back(stream);
    streams.insert(streams.end(), state().closed_streams.begin(), state().closed_streams.end());
  }
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (stream->device() == device) stream->Finish();
  }
}

const Memory* FindMemory(const void* memory, uintptr_t* begin) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto next = state().memory.upper_bound(address);
  if (next == state().memory.begin()) return nullptr;
  const auto& [first, found] = *std::prev(next);
  if (address - first >= found.bytes) return nullptr;
  if (begin != nullptr) *begin = first;
  return &found;
}

bool IsInside(const void* memory, size_t bytes) {
  uintptr_t begin = 0;
  const Memory* const found = FindMemory(memory, &begin);
  if (found == nullptr) return true;
  return bytes <= found->bytes - (reinterpret_cast<uintptr_t>(memory) - begin);
}

cudaError_t TakeDeviceMemory(int device, size_t bytes) {
  size_t& used = state().used[device];
  if (bytes > state().machine.memory - std::min(state().machine.memory, used))
    return cudaErrorMemoryAllocation;
  used += bytes;
  return cudaSuccess;
}

}  // namespace cohort::worker::cuda::fake
