// The fake runtime's sharing of memory between processes, and its driver functions.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/shm/segment.h"
#include "base/unique_fd.h"
#include "worker/cuda/testing/fake_state.h"

namespace cohort::worker::cuda::fake {

// Memory without an address.
struct Physical {
  UniqueFd fd;
  size_t bytes = 0;
  int device = 0;
  bool exportable = false;
  // The process that created the memory counts it; an importer does not.
  bool counted = false;
  int handles = 1;

  // Runs while the state's mutex is held.
  ~Physical() {
    if (counted) state().used[device] -= bytes;
  }
};

namespace {

constexpr size_t kGranularity = size_t{2} << 20;

// The contents of a cudaIpcMemHandle_t.
struct LegacyHandle {
  uint64_t magic;
  int64_t pid;
  int64_t fd;
  uint64_t bytes;
  int64_t device;
};
constexpr uint64_t kMagic = 0x65727475636f6866;
static_assert(sizeof(LegacyHandle) <= sizeof(cudaIpcMemHandle_t));

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
    const bool exportable =
        (properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    if (exportable && !state().machine.exports_fds) return CUDA_ERROR_NOT_SUPPORTED;
    const int device = properties->location.id;
    if (device < 0 || device >= state().machine.devices) return CUDA_ERROR_INVALID_DEVICE;
    const cudaError_t taken = TakeDeviceMemory(device, bytes);
    if (taken != cudaSuccess) return CUDA_ERROR_OUT_OF_MEMORY;
    auto physical = std::make_shared<Physical>();
    physical->fd = UniqueFd(memfd_create("fake physical", MFD_CLOEXEC));
    physical->bytes = bytes;
    physical->device = device;
    physical->exportable = exportable;
    physical->counted = true;
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
    const std::shared_ptr<Physical> physical = FindPhysical(handle);
    if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (--physical->handles == 0) state().physical.erase(handle);
    return CUDA_SUCCESS;
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
    state().memory.emplace(address, Memory{Memory::Kind::kMapped, physical->device, bytes, physical,
                                           static_cast<int>(handle)});
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

CUresult MemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* memory) {
  return DriverCall("cuMemRetainAllocationHandle", [&] {
    MutexLock lock(&state().mutex);
    const Memory* const found = FindMemory(memory, nullptr);
    if (found == nullptr || found->kind != Memory::Kind::kMapped) return CUDA_ERROR_INVALID_VALUE;
    const auto physical = std::static_pointer_cast<Physical>(found->holder);
    for (const auto& [known, of] : state().physical) {
      if (of != physical) continue;
      ++physical->handles;
      *handle = known;
      return CUDA_SUCCESS;
    }
    physical->handles = 1;
    *handle = Keep(physical);
    return CUDA_SUCCESS;
  });
}

CUresult MemExportToShareableHandle(void* exported, CUmemGenericAllocationHandle handle,
                                    CUmemAllocationHandleType type, unsigned long long) {  // NOLINT
  return DriverCall("cuMemExportToShareableHandle", [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Physical> physical = FindPhysical(handle);
    if (physical == nullptr || !physical->exportable ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int fd = fcntl(physical->fd.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(exported) = fd;
    return CUDA_SUCCESS;
  });
}

CUresult MemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* exported,
                                      CUmemAllocationHandleType type) {
  return DriverCall("cuMemImportFromShareableHandle", [&] {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    auto physical = std::make_shared<Physical>();
    const int fd = static_cast<int>(reinterpret_cast<intptr_t>(exported));
    physical->fd = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    struct stat info = {};
    if (fstat(physical->fd.get(), &info) != 0 || info.st_size == 0 ||
        info.st_size % kGranularity != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    physical->bytes = info.st_size;
    MutexLock lock(&state().mutex);
    *handle = Keep(std::move(physical));
    return CUDA_SUCCESS;
  });
}

CUresult MemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  return DriverCall("cuMemGetAddressRange", [&] {
    MutexLock lock(&state().mutex);
    uintptr_t first = 0;
    const Memory* const found = FindMemory(At(address), &first);
    if (found == nullptr || !found->on_device()) return CUDA_ERROR_NOT_FOUND;
    *begin = first;
    *bytes = found->bytes;
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

std::atomic<uint64_t>& Word(CUdeviceptr address) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(address);
}

CUresult CheckWord(CUdeviceptr address) {
  MutexLock lock(&state().mutex);
  const bool known = FindMemory(At(address), nullptr) != nullptr && IsInside(At(address), 8);
  return known && address % 8 == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult StreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int) {
  return DriverCall("cuStreamWriteValue64", [&] {
    const CUresult wrong = CheckWord(address);
    if (wrong != CUDA_SUCCESS) return wrong;
    return static_cast<CUresult>(Enqueue(stream, [address, value] {
      if (!state().dropping) Word(address).store(value);
    }));
  });
}

CUresult StreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                           unsigned int flags) {
  return DriverCall("cuStreamWaitValue64", [&] {
    const CUresult wrong = CheckWord(address);
    if (wrong != CUDA_SUCCESS) return wrong;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
    return static_cast<CUresult>(Enqueue(stream, [address, value] {
      // Compares cyclically, like the hardware.
      while (!state().dropping && static_cast<int64_t>(Word(address).load() - value) < 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }));
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
    {"cuMemRetainAllocationHandle", reinterpret_cast<void*>(&MemRetainAllocationHandle)},
    {"cuMemExportToShareableHandle", reinterpret_cast<void*>(&MemExportToShareableHandle)},
    {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(&MemImportFromShareableHandle)},
    {"cuMemGetAddressRange", reinterpret_cast<void*>(&MemGetAddressRange)},
    {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&DevicePrimaryCtxGetState)},
    {"cuStreamWriteValue64", reinterpret_cast<void*>(&StreamWriteValue64)},
    {"cuStreamWaitValue64", reinterpret_cast<void*>(&StreamWaitValue64)},
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

// Returns the handle of the whole allocation in which the address lies.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const Memory* const found = FindMemory(memory, nullptr);
    if (found == nullptr || found->kind != Memory::Kind::kDevice) return cudaErrorInvalidValue;
    const LegacyHandle content = {kMagic, getpid(), found->fd, found->bytes, found->device};
    *handle = {};
    std::memcpy(handle, &content, sizeof(content));
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned int) {
  return Call(__func__, [&] {
    LegacyHandle content = {};
    std::memcpy(&content, &handle, sizeof(content));
    if (content.magic != kMagic) return cudaErrorInvalidResourceHandle;
    // The owning process cannot open its own handle.
    if (content.pid == getpid()) return cudaErrorDeviceUninitialized;
    const std::string path = absl::StrCat("/proc/", content.pid, "/fd/", content.fd);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return cudaErrorMapBufferObjectFailed;
    absl::StatusOr<shm::Segment> segment = shm::Segment::Map(fd, content.bytes);
    if (!segment.ok()) return cudaErrorMapBufferObjectFailed;
    auto holder = std::make_shared<shm::Segment>(*std::move(segment));
    *memory = holder->data();
    MutexLock lock(&state().mutex);
    state().memory.emplace(reinterpret_cast<uintptr_t>(*memory),
                           Memory{Memory::Kind::kOpened, static_cast<int>(content.device),
                                  content.bytes, std::move(holder)});
    return cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const auto found = state().memory.find(reinterpret_cast<uintptr_t>(memory));
    if (found == state().memory.end() || found->second.kind != Memory::Kind::kOpened) {
      return cudaErrorInvalidValue;
    }
    state().memory.erase(found);
    return cudaSuccess;
  });
}

}  // extern "C"

}  // namespace cohort::worker::cuda::fake
