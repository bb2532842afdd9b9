// What CUDA answers, as a status.
#ifndef COHORT_WORKER_CUDA_ERROR_H_
#define COHORT_WORKER_CUDA_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda.h"
#include "cuda_runtime_api.h"

// What a call gave, as a status with the name of the function in it:
//
//   COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaEventRecord(event, stream)));
#define COHORT_CUDA_CALL(call) ::cohort::worker::cuda::ToStatus((call), #call)

namespace cohort::worker::cuda {

// Of `call`, of which the part before the parenthesis is named. An error is taken away from the
// thread, so that the next who asks for the last one does not get it.
//
// RESOURCE_EXHAUSTED: no memory. FAILED_PRECONDITION: no device, no driver or one too old, which
// says what to do; also what the state of a device or stream does not allow. INVALID_ARGUMENT: a
// value or handle that is none. UNIMPLEMENTED: not by this device or driver. UNAVAILABLE: not yet
// (cudaErrorNotReady, which those who can wait look at before). INTERNAL: all else; when the
// process's context is lost, it says so.
absl::Status ToStatus(cudaError_t error, absl::string_view call);
// Of the driver, whose results have the same numbers.
absl::Status ToStatus(CUresult result, absl::string_view call);

// Whether nothing on the device works any more in this process, whatever is called.
bool ContextIsLost(cudaError_t error);

// The same error, of something: "what: message".
absl::Status Of(absl::string_view what, const absl::Status& status);

// For destructors, which can tell nobody else.
void LogIfError(absl::string_view what, const absl::Status& status);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_ERROR_H_
