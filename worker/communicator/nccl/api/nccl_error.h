// NCCL's results as statuses.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_ERROR_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nccl.h"
#include "worker/communicator/nccl/api/nccl_api.h"

namespace cohort::worker {

// `call` is the function's name, such as "ncclAllReduce". The text has it, the result's name, and
// NCCL's last error text, which usually belongs to this failure, but may belong to an earlier one.
//
//   ncclSuccess, ncclInProgress   OK
//   ncclUnhandledCudaError        INTERNAL
//   ncclSystemError               UNAVAILABLE: sockets, memory of the system
//   ncclInternalError             INTERNAL
//   ncclInvalidArgument           INVALID_ARGUMENT
//   ncclInvalidUsage              INTERNAL: callers check their arguments; this is a mistake here
//   ncclRemoteError               ABORTED: another rank failed, or is gone
//   others                        UNKNOWN: of a later NCCL
absl::Status NcclError(NcclApi& nccl, ncclResult_t result, absl::string_view call);

// "ncclSystemError", ...; "result 9" if the value is not known here.
std::string NameOf(ncclResult_t result);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_ERROR_H_
