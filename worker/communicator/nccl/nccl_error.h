// What NCCL answers, as a status.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_ERROR_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nccl.h"
#include "worker/communicator/nccl/nccl_api.h"

namespace cohort::worker {

// `call` is the function's name, such as "ncclAllReduce". The text has it, the result's name, and
// what NCCL last said, which is of this failure as a rule, but may be of an earlier one.
//
//   ncclSuccess, ncclInProgress   OK
//   ncclUnhandledCudaError        INTERNAL
//   ncclSystemError               UNAVAILABLE: sockets, memory of the system
//   ncclInternalError             INTERNAL
//   ncclInvalidArgument           INVALID_ARGUMENT
//   ncclInvalidUsage              INTERNAL: callers check what they are given; this is a mistake
//   here ncclRemoteError               ABORTED: another rank failed, or is gone others UNKNOWN: of
//   a later NCCL
absl::Status NcclError(NcclApi& nccl, ncclResult_t result, absl::string_view call);

// "ncclSystemError", ...; of one that is none here, "result 9".
std::string NameOf(ncclResult_t result);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_ERROR_H_
