// Memory and copies of the fake runtime.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/shm/segment.h"
#include "worker/cuda/testing/fake_state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace cohort::worker::cuda::fake {
namespace {

constexpr size_t kAlignment = 256;

uintptr_t AddressOf(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

// Lets AddressSanitizer find writes after the last byte, although the page continues.
void ForbidBehind(char* memory, size_t bytes, size_t page) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(memory + bytes, (page - bytes % page) % page);
#else
  (void)memory, (void)bytes, (void)page;
#endif
}

struct DeviceBlock {
  shm::Segment segment;
  int device;

  // Runs while the state's mutex is held.
  ~DeviceBlock() {
#if defined(__SANITIZE_ADDRESS__)
    const size_t page = sysconf(_SC_PAGESIZE);
    const size_t whole = (segment.size() + page - 1) / page * page;
    ASAN_UNPOISON_MEMORY_REGION(segment.data(), whole);
#endif
    state().used[device] -= segment.size();
  }
};

cudaError_t Allocate(Memory::Kind kind, void** memory, size_t bytes) {
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  const int device = CurrentDevice();
  MutexLock lock(&state().mutex);
  const cudaError_t taken = TakeDeviceMemory(device, bytes);
  if (taken != cudaSuccess) return taken;
  absl::StatusOr<shm::Segment> segment = shm::Segment::Create("fake device", bytes);
  if (!segment.ok()) {
    state().used[device] -= bytes;
    return cudaErrorMemoryAllocation;
  }
  auto block = std::make_shared<DeviceBlock>();
  block->segment = *std::move(segment);
  block->device = device;
  char* const data = block->segment.data();
  ForbidBehind(data, bytes, sysconf(_SC_PAGESIZE));
  state().memory.emplace(AddressOf(data), Memory{kind, device, bytes, std::move(block)});
  *memory = data;
  return cudaSuccess;
}

// Finds the range that begins at `memory`. Returns a copy, because the lock is released.
cudaError_t Begins(const void* memory, Memory* found) {
  MutexLock lock(&state().mutex);
  const auto it = state().memory.find(AddressOf(memory));
  if (it == state().memory.end()) return cudaErrorInvalidValue;
  *found = it->second;
  return cudaSuccess;
}

void Forget(const void* memory) {
  MutexLock lock(&state().mutex);
  const auto found = state().memory.find(AddressOf(memory));
  if (found == state().memory.end()) return;
  if (!found->second.on_device()) state().pinned -= found->second.bytes;
  state().memory.erase(found);
}

struct Rows {
  char* to;
  size_t to_pitch;
  const char* from;
  size_t from_pitch;
  size_t width;
  size_t count;

  void Copy() const {
    for (size_t i = 0; i < count; ++i)
      std::memmove(to + i * to_pitch, from + i * from_pitch, width);
  }
};

cudaError_t Check(const void* memory, size_t bytes, bool must_be_device, bool must_be_host,
                  bool* pageable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex) {
  if (memory == nullptr || !IsInside(memory, bytes)) return cudaErrorInvalidValue;
  const Memory* const found = FindMemory(memory, nullptr);
  *pageable = found == nullptr;
  const bool on_device = found != nullptr && found->on_device();
  const bool wrong = (must_be_device && !on_device) || (must_be_host && on_device);
  return wrong ? cudaErrorInvalidValue : cudaSuccess;
}

// Copies pageable host memory like CUDA: the call reads it before it returns. If the call writes to
// it, it waits for the stream.
cudaError_t Copy(const Rows& rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (rows.width == 0 || rows.count == 0) return cudaSuccess;
  if (rows.width > rows.to_pitch || rows.width > rows.from_pitch) return cudaErrorInvalidPitchValue;
  bool from_pageable = false;
  bool to_pageable = false;
  bool captured = false;
  std::shared_ptr<Stream> waited_for;
  {
    MutexLock lock(&state().mutex);
    const size_t last = rows.count - 1;
    cudaError_t wrong =
        Check(rows.from, last * rows.from_pitch + rows.width,
              kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice,
              kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost, &from_pageable);
    if (wrong != cudaSuccess) return wrong;
    wrong = Check(rows.to, last * rows.to_pitch + rows.width,
                  kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
                  kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost, &to_pageable);
    if (wrong != cudaSuccess) return wrong;
    waited_for = FindStream(stream);
    if (waited_for == nullptr) return cudaErrorInvalidResourceHandle;
    captured = waited_for->capture != nullptr;
  }
  Work work = [rows] {
    if (!state().dropping) rows.Copy();
  };
  if (from_pageable && !to_pageable && !captured) {
    auto bytes = std::make_shared<std::string>(rows.width * rows.count, '\0');
    const Rows taken = {bytes->data(),   rows.width, rows.from,
                        rows.from_pitch, rows.width, rows.count};
    taken.Copy();
    const Rows given = {rows.to, rows.to_pitch, bytes->data(), rows.width, rows.width, rows.count};
    work = [bytes, given] {
      if (!state().dropping) given.Copy();
    };
  }
  const cudaError_t result = Enqueue(stream, std::move(work));
  if (result == cudaSuccess && to_pageable && !captured) waited_for->Finish();
  return result;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return Call(__func__, [&] { return Allocate(Memory::Kind::kDevice, memory, bytes); });
}

// Waits for all work of the device, like the real function.
cudaError_t cudaFree(void* memory) {
  return Call(__func__, [&] {
    if (memory == nullptr) return cudaSuccess;
    Memory found;
    const cudaError_t unknown = Begins(memory, &found);
    if (unknown != cudaSuccess) return unknown;
    if (found.kind != Memory::Kind::kDevice && found.kind != Memory::Kind::kPool) {
      return cudaErrorInvalidValue;
    }
    FinishDevice(found.device);
    Forget(memory);
    MutexLock lock(&state().mutex);  // held when the last holder goes
    found.holder.reset();
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return Call(__func__, [&] {
    {
      MutexLock lock(&state().mutex);
      const std::shared_ptr<Stream> found = FindStream(stream);
      if (found == nullptr) return cudaErrorInvalidResourceHandle;
      if (found->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    }
    return Allocate(Memory::Kind::kPool, memory, bytes);
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return Call(__func__, [&] {
    if (memory == nullptr) return cudaSuccess;
    Memory found;
    const cudaError_t unknown = Begins(memory, &found);
    if (unknown != cudaSuccess) return unknown;
    {
      MutexLock lock(&state().mutex);
      found.holder.reset();
    }
    return Enqueue(stream, [memory] { Forget(memory); });
  });
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  return Call(__func__, [&] {
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    MutexLock lock(&state().mutex);
    if (bytes > state().machine.pinned_memory - state().pinned) return cudaErrorMemoryAllocation;
    void* pinned = nullptr;
    if (posix_memalign(&pinned, kAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
    std::shared_ptr<void> holder(pinned, std::free);
    *memory = holder.get();
    state().pinned += bytes;
    state().memory.emplace(AddressOf(*memory), Memory{Memory::Kind::kPinned, CurrentDevice(), bytes,
                                                      std::move(holder)});
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return Call(__func__, [&] {
    if (memory == nullptr) return cudaSuccess;
    Memory found;
    const cudaError_t unknown = Begins(memory, &found);
    if (unknown != cudaSuccess) return unknown;
    if (found.kind != Memory::Kind::kPinned) return cudaErrorInvalidValue;
    FinishDevice(found.device);
    Forget(memory);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Call(__func__, [&] {
    return Copy({static_cast<char*>(to), bytes, static_cast<const char*>(from), bytes, bytes, 1},
                kind, stream);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return Call(__func__, [&] {
    return Copy({static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch,
                 width, height},
                kind, stream);
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return Call(__func__, [&] {
    if (bytes == 0) return cudaSuccess;
    {
      MutexLock lock(&state().mutex);
      if (FindMemory(memory, nullptr) == nullptr || !IsInside(memory, bytes)) {
        return cudaErrorInvalidValue;
      }
    }
    return Enqueue(stream, [memory, value, bytes] {
      if (!state().dropping) std::memset(memory, value, bytes);
    });
  });
}

}  // extern "C"

}  // namespace cohort::worker::cuda::fake
