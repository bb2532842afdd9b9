#include "worker/cuda/memory/virtual_mapping.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/device/driver_functions.h"

namespace cohort::worker::cuda {

CUmemAllocationProp VirtualMapping::PropertiesFor(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

absl::StatusOr<size_t> VirtualMapping::Granularity(int device) {
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  const CUmemAllocationProp properties = PropertiesFor(device);
  size_t granularity = 0;
  COHORT_RETURN_IF_ERROR(ToStatus(driver->cuMemGetAllocationGranularity(
                                      &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                  "cuMemGetAllocationGranularity"));
  return granularity;
}

absl::StatusOr<VirtualMapping> VirtualMapping::Map(CUmemGenericAllocationHandle physical,
                                                   size_t bytes, int device) {
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  // The mapping keeps the memory; the handle is released.
  const auto release = absl::MakeCleanup([&] {
    LogIfError("a handle of CUDA memory is not released",
               ToStatus(driver->cuMemRelease(physical), "cuMemRelease"));
  });
  const std::string what = absl::StrCat("mapping ", bytes, " bytes of CUDA device ", device);
  VirtualMapping mapping;
  CUdeviceptr address = 0;
  COHORT_RETURN_IF_ERROR(Of(what, ToStatus(driver->cuMemAddressReserve(&address, bytes, 0, 0, 0),
                                           "cuMemAddressReserve")));
  mapping.address_ = address;
  mapping.bytes_ = bytes;
  COHORT_RETURN_IF_ERROR(
      Of(what, ToStatus(driver->cuMemMap(address, bytes, 0, physical, 0), "cuMemMap")));
  mapping.mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = PropertiesFor(device).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  COHORT_RETURN_IF_ERROR(
      Of(what, ToStatus(driver->cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess")));
  return mapping;
}

VirtualMapping::~VirtualMapping() {
  if (address_ == 0) return;
  const Driver& driver = **GetDriver();  // found before; it lives for ever
  if (mapped_) {
    LogIfError("CUDA memory stays mapped",
               ToStatus(driver.cuMemUnmap(address_, bytes_), "cuMemUnmap"));
  }
  LogIfError("addresses for CUDA memory stay reserved",
             ToStatus(driver.cuMemAddressFree(address_, bytes_), "cuMemAddressFree"));
}

}  // namespace cohort::worker::cuda
