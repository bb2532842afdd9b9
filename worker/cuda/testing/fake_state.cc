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

cudaError_t Refusal(const char* function) {
  if (InHostFunction()) return cudaErrorNotPermitted;
  State& s = state();
  MutexLock lock(&s.mutex);
  if (s.machine.missing != cudaSuccess) return s.machine.missing;
  if (s.machine.devices == 0) return cudaErrorNoDevice;
  if (s.sticky != cudaSuccess) return s.sticky;
  const auto failures = s.failures.find(function);
  if (failures == s.failures.end()) return cudaSuccess;
  Failure& next = failures->second.front();
  if (next.calls_before-- > 0) return cudaSuccess;
  const cudaError_t error = next.error;
  failures->second.pop_front();
  if (failures->second.empty()) s.failures.erase(failures);
  return error;
}

std::shared_ptr<Stream> FindStream(cudaStream_t stream) {
  State& s = state();
  // The default stream's two other names are the same here.
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    std::shared_ptr<Stream>& found = s.default_streams[CurrentDevice()];
    if (found == nullptr) found = Stream::Start(CurrentDevice());
    return found;
  }
  const auto found = s.streams.find(stream);
  return found == s.streams.end() ? nullptr : found->second;
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
    State& s = state();
    MutexLock lock(&s.mutex);
    for (const auto& [handle, stream] : s.streams) streams.push_back(stream);
    for (const auto& [number, stream] : s.default_streams) streams.push_back(stream);
    streams.insert(streams.end(), s.closed_streams.begin(), s.closed_streams.end());
  }
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (stream->device() == device) stream->Finish();
  }
}

const Memory* FindMemory(const void* memory, uintptr_t* begin) {
  const std::map<uintptr_t, Memory>& known = state().memory;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto next = known.upper_bound(address);
  if (next == known.begin()) return nullptr;
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
  State& s = state();
  size_t& used = s.used[device];
  if (bytes > s.machine.memory - std::min(s.machine.memory, used)) return cudaErrorMemoryAllocation;
  used += bytes;
  return cudaSuccess;
}

}  // namespace cohort::worker::cuda::fake
