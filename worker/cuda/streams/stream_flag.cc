#include "worker/cuda/streams/stream_flag.h"

#include "base/status_macros.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/device/driver_functions.h"

namespace cohort::worker::cuda {

absl::Status SetFlag(cudaStream_t stream, uint64_t* flag, uint64_t value) {
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  return ToStatus(driver->cuStreamWriteValue64(stream, reinterpret_cast<CUdeviceptr>(flag), value,
                                               CU_STREAM_WRITE_VALUE_DEFAULT),
                  "cuStreamWriteValue64");
}

absl::Status AwaitFlag(cudaStream_t stream, uint64_t* flag, uint64_t value) {
  COHORT_ASSIGN_OR_RETURN(const Driver* const driver, GetDriver());
  return ToStatus(driver->cuStreamWaitValue64(stream, reinterpret_cast<CUdeviceptr>(flag), value,
                                              CU_STREAM_WAIT_VALUE_GEQ),
                  "cuStreamWaitValue64");
}

}  // namespace cohort::worker::cuda
