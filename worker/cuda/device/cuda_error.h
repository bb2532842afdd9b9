// CUDA's results as statuses.
#ifndef COHORT_WORKER_CUDA_DEVICE_CUDA_ERROR_H_
#define COHORT_WORKER_CUDA_DEVICE_CUDA_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda.h"
#include "cuda_runtime_api.h"

// Makes a call, and returns its result as a status that names the function:
//
//   COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaEventRecord(event, stream)));
#define COHORT_CUDA_CALL(call) ::cohort::worker::cuda::ToStatus((call), #call)

namespace cohort::worker::cuda {

// `call` is the text of the call; the status names the part before the parenthesis. Clears the
// thread's last error, so that a later cudaGetLastError does not return it.
//
//   RESOURCE_EXHAUSTED   no memory
//   FAILED_PRECONDITION  no device, no driver or one too old, with advice; or the state of a device
//                        or stream does not allow the call
//   INVALID_ARGUMENT     an invalid value or handle
//   UNIMPLEMENTED        the device or driver does not support the call
//   UNAVAILABLE          cudaErrorNotReady; callers that can wait check for it before
//   INTERNAL             all other errors; says if the process's context is lost
absl::Status ToStatus(cudaError_t error, absl::string_view call);
// The same for the driver, whose results have the same numbers.
absl::Status ToStatus(CUresult result, absl::string_view call);

// Whether every further call on the device fails in this process.
bool ContextIsLost(cudaError_t error);

// The same error with a prefix: "what: message".
absl::Status Of(absl::string_view what, const absl::Status& status);

// For destructors, which cannot return an error.
void LogIfError(absl::string_view what, const absl::Status& status);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_DEVICE_CUDA_ERROR_H_
