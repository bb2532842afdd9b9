#include "worker/cuda/device/driver_functions.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/device/cuda_error.h"

namespace cohort::worker::cuda {
namespace {

// The version of the functions: that of CUDA 12's drivers.
constexpr unsigned int kVersion = 12000;

template <typename Function>
absl::Status Find(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  COHORT_RETURN_IF_ERROR(Of(name, COHORT_CUDA_CALL(cudaGetDriverEntryPointByVersion(
                                      name, &found, kVersion, cudaEnableDefault, &result))));
  if (found == nullptr || result != cudaDriverEntryPointSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("the NVIDIA driver has no ", name, ": install one for CUDA 12 or newer"));
  }
  *function = reinterpret_cast<Function>(found);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Driver>> FindAll() {
  auto driver = std::make_unique<Driver>();
  COHORT_RETURN_IF_ERROR(
      Find("cuMemGetAllocationGranularity", &driver->cuMemGetAllocationGranularity));
  COHORT_RETURN_IF_ERROR(Find("cuMemCreate", &driver->cuMemCreate));
  COHORT_RETURN_IF_ERROR(Find("cuMemRelease", &driver->cuMemRelease));
  COHORT_RETURN_IF_ERROR(Find("cuMemAddressReserve", &driver->cuMemAddressReserve));
  COHORT_RETURN_IF_ERROR(Find("cuMemAddressFree", &driver->cuMemAddressFree));
  COHORT_RETURN_IF_ERROR(Find("cuMemMap", &driver->cuMemMap));
  COHORT_RETURN_IF_ERROR(Find("cuMemUnmap", &driver->cuMemUnmap));
  COHORT_RETURN_IF_ERROR(Find("cuMemSetAccess", &driver->cuMemSetAccess));
  COHORT_RETURN_IF_ERROR(Find("cuDevicePrimaryCtxGetState", &driver->cuDevicePrimaryCtxGetState));
  return driver;
}

}  // namespace

absl::StatusOr<const Driver*> GetDriver() {
  static Mutex* const mutex = new Mutex;
  static const Driver* driver = nullptr;
  MutexLock lock(mutex);
  // A failure is not kept: a driver may be installed later.
  if (driver == nullptr) {
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<const Driver> found, FindAll());
    driver = found.release();
  }
  return driver;
}

}  // namespace cohort::worker::cuda
