#include "worker/cuda/memory/ipc_memory.h"

#include <cstdint>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/device/driver_functions.h"

namespace cohort::worker::cuda {
namespace {

constexpr char kCannotShare[] =
    ": other processes cannot open this memory: it is of cudaMallocAsync, or of cuMemCreate "
    "without "
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; take Group::Allocate or cudaMalloc";

struct Allocation {
  CUdeviceptr begin = 0;
  size_t bytes = 0;
};

absl::StatusOr<Allocation> AllocationOf(const Driver& driver, const void* memory) {
  Allocation allocation;
  COHORT_RETURN_IF_ERROR(
      ToStatus(driver.cuMemGetAddressRange(&allocation.begin, &allocation.bytes,
                                           reinterpret_cast<CUdeviceptr>(memory)),
               "cuMemGetAddressRange"));
  return allocation;
}

absl::StatusOr<UniqueFd> ExportFd(const Driver& driver, CUmemGenericAllocationHandle physical) {
  const auto release = absl::MakeCleanup([&] {
    LogIfError("a handle of CUDA memory is not released",
               ToStatus(driver.cuMemRelease(physical), "cuMemRelease"));
  });
  int fd = -1;
  const absl::Status exported =
      ToStatus(driver.cuMemExportToShareableHandle(&fd, physical,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "cuMemExportToShareableHandle");
  if (!exported.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(exported.message(), kCannotShare));
  }
  return UniqueFd(fd);
}

absl::StatusOr<ExportedMemory::LegacyHandle> ExportLegacy(CUdeviceptr begin) {
  cudaIpcMemHandle_t handle;
  const absl::Status exported =
      COHORT_CUDA_CALL(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(begin)));
  if (!exported.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(exported.message(), kCannotShare));
  }
  ExportedMemory::LegacyHandle copy;
  std::memcpy(copy.data(), &handle, copy.size());
  return copy;
}

absl::Status WrongSize(const ExportedMemory& exported, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("device memory of another process, ",
                                                 exported.bytes, " bytes at ", exported.offset,
                                                 " of ", exported.allocation_bytes, ": ", why));
}

absl::StatusOr<VirtualMapping> MapFd(const ExportedMemory& exported, int device) {
  if (!exported.fd.is_open()) return WrongSize(exported, "it came without a file descriptor");
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  COHORT_ASSIGN_OR_RETURN(const size_t unit, VirtualMapping::Granularity(device));
  if (exported.allocation_bytes % unit != 0) {
    return WrongSize(exported, absl::StrCat("an allocation is a multiple of ", unit, " bytes"));
  }
  CUmemGenericAllocationHandle physical = 0;
  const absl::Status imported =
      ToStatus(driver->cuMemImportFromShareableHandle(
                   &physical, reinterpret_cast<void*>(static_cast<intptr_t>(exported.fd.get())),
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle");
  if (!imported.ok()) return Of("device memory of another process", imported);
  // Map refuses more bytes than the allocation has.
  absl::StatusOr<VirtualMapping> mapping =
      VirtualMapping::Map(physical, exported.allocation_bytes, device);
  if (!mapping.ok()) return Of("device memory of another process", mapping.status());
  return mapping;
}

}  // namespace

absl::StatusOr<ExportedMemory> Export(const void* memory, size_t bytes) {
  cudaPointerAttributes attributes = {};
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaPointerGetAttributes(&attributes, memory)));
  if (attributes.type != cudaMemoryTypeDevice || bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory of ", bytes, " bytes to export: it is no device memory"));
  }
  COHORT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(attributes.device));
  COHORT_ASSIGN_OR_RETURN(const DeviceInfo info, DescribeDevice(attributes.device));
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  COHORT_ASSIGN_OR_RETURN(const Allocation allocation, AllocationOf(*driver, memory));
  ExportedMemory exported;
  exported.device_uuid = info.uuid;
  exported.allocation_bytes = allocation.bytes;
  exported.offset = reinterpret_cast<CUdeviceptr>(memory) - allocation.begin;
  exported.bytes = bytes;
  if (bytes > allocation.bytes - exported.offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        "export of ", bytes, " bytes at offset ", exported.offset, " of an allocation of ",
        allocation.bytes, " bytes: the exported memory must lie in one allocation"));
  }
  CUmemGenericAllocationHandle physical = 0;
  const CUresult retained =
      driver->cuMemRetainAllocationHandle(&physical, reinterpret_cast<void*>(allocation.begin));
  if (retained == CUDA_SUCCESS) {
    exported.kind = ExportedMemory::Kind::kFd;
    COHORT_ASSIGN_OR_RETURN(exported.fd, ExportFd(*driver, physical));
    return exported;
  }
  // The memory is not from cuMemCreate.
  exported.kind = ExportedMemory::Kind::kLegacy;
  COHORT_ASSIGN_OR_RETURN(exported.legacy_handle, ExportLegacy(allocation.begin));
  return exported;
}

absl::StatusOr<ImportedMemory> ImportedMemory::Import(const ExportedMemory& exported) {
  if (exported.bytes == 0 || exported.offset > exported.allocation_bytes ||
      exported.bytes > exported.allocation_bytes - exported.offset) {
    return WrongSize(exported, "it is not in its allocation");
  }
  COHORT_ASSIGN_OR_RETURN(const int device, FindDevice(exported.device_uuid));
  COHORT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(device));
  ImportedMemory imported;
  imported.device_ = device;
  if (exported.kind == ExportedMemory::Kind::kFd) {
    COHORT_ASSIGN_OR_RETURN(imported.mapping_, MapFd(exported, device));
    imported.data_ = imported.mapping_.data() + exported.offset;
  } else {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, exported.legacy_handle.data(), exported.legacy_handle.size());
    COHORT_RETURN_IF_ERROR(Of("device memory of another process",
                              COHORT_CUDA_CALL(cudaIpcOpenMemHandle(
                                  &imported.opened_, handle, cudaIpcMemLazyEnablePeerAccess))));
    COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
    COHORT_ASSIGN_OR_RETURN(const Allocation allocation, AllocationOf(*driver, imported.opened_));
    // Small allocations are parts of larger ones, which CUDA opens as a whole.
    const size_t before = reinterpret_cast<CUdeviceptr>(imported.opened_) - allocation.begin;
    if (exported.offset + exported.bytes > allocation.bytes - before) {
      return WrongSize(exported, absl::StrCat("its allocation ends after ",
                                              allocation.bytes - before, " bytes"));
    }
    imported.data_ = static_cast<char*>(imported.opened_) + exported.offset;
  }
  imported.size_ = exported.bytes;
  return imported;
}

ImportedMemory::~ImportedMemory() {
  if (opened_ == nullptr) return;
  LogIfError("CUDA memory of another process stays open",
             COHORT_CUDA_CALL(cudaIpcCloseMemHandle(opened_)));
}

}  // namespace cohort::worker::cuda
