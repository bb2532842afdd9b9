// Functions of the driver that have no counterpart in the runtime.
#ifndef COHORT_WORKER_CUDA_DEVICE_DRIVER_FUNCTIONS_H_
#define COHORT_WORKER_CUDA_DEVICE_DRIVER_FUNCTIONS_H_

#include "absl/status/statusor.h"
#include "cudaTypedefs.h"

namespace cohort::worker::cuda {

// Each has the name of its function in cuda.h. The runtime finds them, so that the program does not
// link libcuda, which machines without a GPU lack.
struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 cuMemGetAllocationGranularity;
  PFN_cuMemCreate_v10020 cuMemCreate;
  PFN_cuMemRelease_v10020 cuMemRelease;
  PFN_cuMemAddressReserve_v10020 cuMemAddressReserve;
  PFN_cuMemAddressFree_v10020 cuMemAddressFree;
  PFN_cuMemMap_v10020 cuMemMap;
  PFN_cuMemUnmap_v10020 cuMemUnmap;
  PFN_cuMemSetAccess_v10020 cuMemSetAccess;
  PFN_cuDevicePrimaryCtxGetState_v7000 cuDevicePrimaryCtxGetState;
};

// Finds the functions once; the result lives for ever. Errors: FAILED_PRECONDITION (no driver, or
// one too old).
absl::StatusOr<const Driver*> GetDriver();

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_DEVICE_DRIVER_FUNCTIONS_H_
