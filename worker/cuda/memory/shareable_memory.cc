#include "worker/cuda/memory/shareable_memory.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/device/driver_functions.h"

namespace cohort::worker::cuda {

absl::StatusOr<ShareableMemory> ShareableMemory::Allocate(int device, size_t bytes) {
  COHORT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(device));
  if (bytes == 0) return ShareableMemory(VirtualMapping(), 0, device);
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  COHORT_ASSIGN_OR_RETURN(const size_t unit, VirtualMapping::Granularity(device));
  const std::string what =
      absl::StrCat("shareable memory of ", bytes, " bytes on CUDA device ", device);
  if (bytes > std::numeric_limits<size_t>::max() - unit) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": its size overflows"));
  }
  const size_t whole = (bytes + unit - 1) / unit * unit;
  const CUmemAllocationProp properties = VirtualMapping::PropertiesFor(device);
  CUmemGenericAllocationHandle physical = 0;
  COHORT_RETURN_IF_ERROR(
      Of(what, ToStatus(driver->cuMemCreate(&physical, whole, &properties, 0), "cuMemCreate")));
  COHORT_ASSIGN_OR_RETURN(VirtualMapping mapping, VirtualMapping::Map(physical, whole, device));
  return ShareableMemory(std::move(mapping), bytes, device);
}

}  // namespace cohort::worker::cuda
