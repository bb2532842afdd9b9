// The fake runtime's functions of the driver: physical memory and its mappings.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "base/unique_fd.h"
#include "worker/cuda/testing/fake_state.h"

namespace cohort::worker::cuda::fake {

// Memory without an address.
struct Physical {
  UniqueFd fd;
  size_t bytes = 0;
  int device = 0;

  // Runs while the state's mutex is held.
  ~Physical() { state().used[device] -= bytes; }
};

namespace {

constexpr size_t kGranularity = size_t{2} << 20;

void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

std::shared_ptr<Physical> FindPhysical(CUmemGenericAllocationHandle handle)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex) {
  const auto found = state().physical.find(handle);
  return found == state().physical.end() ? nullptr : found->second;
}

CUmemGenericAllocationHandle Keep(std::shared_ptr<Physical> physical)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex) {
  const CUmemGenericAllocationHandle handle = state().last_handle += 0x10;
  state().physical.emplace(handle, std::move(physical));
  return handle;
}

bool IsReserved(uintptr_t address, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex) {
  for (const auto& [begin, size] : state().reserved) {
    if (address >= begin && address - begin <= size && bytes <= size - (address - begin)) {
      return true;
    }
  }
  return false;
}

CUresult MemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                     CUmemAllocationGranularity_flags) {
  return DriverCall("cuMemGetAllocationGranularity", [&] {
    *granularity = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult MemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                   const CUmemAllocationProp* properties, unsigned long long) {  // NOLINT
  return DriverCall("cuMemCreate", [&] {
    if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    MutexLock lock(&state().mutex);
    const int device = properties->location.id;
    if (device < 0 || device >= state().machine.devices) return CUDA_ERROR_INVALID_DEVICE;
    const cudaError_t taken = TakeDeviceMemory(device, bytes);
    if (taken != cudaSuccess) return CUDA_ERROR_OUT_OF_MEMORY;
    auto physical = std::make_shared<Physical>();
    physical->fd = UniqueFd(memfd_create("fake physical", MFD_CLOEXEC));
    physical->bytes = bytes;
    physical->device = device;
    if (ftruncate(physical->fd.get(), static_cast<off_t>(bytes)) != 0) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = Keep(std::move(physical));
    return CUDA_SUCCESS;
  });
}

CUresult MemRelease(CUmemGenericAllocationHandle handle) {
  return DriverCall("cuMemRelease", [&] {
    MutexLock lock(&state().mutex);
    return state().physical.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult MemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                           unsigned long long) {  // NOLINT
  return DriverCall("cuMemAddressReserve", [&] {
    if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    void* const reserved =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(reserved);
    MutexLock lock(&state().mutex);
    state().reserved.emplace(*address, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult MemAddressFree(CUdeviceptr address, size_t bytes) {
  return DriverCall("cuMemAddressFree", [&] {
    MutexLock lock(&state().mutex);
    const auto found = state().reserved.find(address);
    if (found == state().reserved.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    if (FindMemory(At(address), nullptr) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    munmap(At(address), bytes);
    state().reserved.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                CUmemGenericAllocationHandle handle, unsigned long long) {  // NOLINT
  return DriverCall("cuMemMap", [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Physical> physical = FindPhysical(handle);
    if (physical == nullptr || offset != 0 || bytes == 0 || bytes % kGranularity != 0 ||
        bytes > physical->bytes || !IsReserved(address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // The memory is not accessible before MemSetAccess.
    if (mmap(At(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd.get(), 0) ==
        MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    state().memory.emplace(address,
                           Memory{Memory::Kind::kMapped, physical->device, bytes, physical});
    return CUDA_SUCCESS;
  });
}

CUresult MemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*, size_t) {
  return DriverCall("cuMemSetAccess", [&] {
    MutexLock lock(&state().mutex);
    if (FindMemory(At(address), nullptr) == nullptr || !IsInside(At(address), bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    mprotect(At(address), bytes, PROT_READ | PROT_WRITE);
    return CUDA_SUCCESS;
  });
}

CUresult MemUnmap(CUdeviceptr address, size_t bytes) {
  return DriverCall("cuMemUnmap", [&] {
    MutexLock lock(&state().mutex);
    const auto found = state().memory.find(address);
    if (found == state().memory.end() || found->second.kind != Memory::Kind::kMapped ||
        found->second.bytes != bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    mmap(At(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    state().memory.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult DevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return DriverCall("cuDevicePrimaryCtxGetState", [&] {
    MutexLock lock(&state().mutex);
    *flags = 0;
    *active = state().active.count(device) > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

struct DriverFunction {
  const char* name;
  void* function;
};

const DriverFunction kDriver[] = {
    {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&MemGetAllocationGranularity)},
    {"cuMemCreate", reinterpret_cast<void*>(&MemCreate)},
    {"cuMemRelease", reinterpret_cast<void*>(&MemRelease)},
    {"cuMemAddressReserve", reinterpret_cast<void*>(&MemAddressReserve)},
    {"cuMemAddressFree", reinterpret_cast<void*>(&MemAddressFree)},
    {"cuMemMap", reinterpret_cast<void*>(&MemMap)},
    {"cuMemSetAccess", reinterpret_cast<void*>(&MemSetAccess)},
    {"cuMemUnmap", reinterpret_cast<void*>(&MemUnmap)},
    {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&DevicePrimaryCtxGetState)},
};

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                             unsigned long long,  // NOLINT: CUDA's type.
                                             cudaDriverEntryPointQueryResult* found) {
  return Call(__func__, [&] {
    *function = nullptr;
    if (found != nullptr) *found = cudaDriverEntryPointSymbolNotFound;
    for (const DriverFunction& known : kDriver) {
      if (std::strcmp(known.name, symbol) != 0) continue;
      *function = known.function;
      if (found != nullptr) *found = cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
  });
}

}  // extern "C"

}  // namespace cohort::worker::cuda::fake
