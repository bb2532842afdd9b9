// An operation in NCCL's words, and the call of it.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_CALL_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_CALL_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/nccl/api/nccl_api.h"

namespace cohort::worker {

// The operands of a call in NCCL's type; it may take several NCCL elements for one of ours.
struct NcclOperands {
  ncclDataType_t type = ncclUint8;
  size_t count = 0;
  // ncclNumOps: the sum of scaled elements, which has to be made.
  ncclRedOp_t op = ncclSum;
};

// Errors: as ReductionFor.
absl::StatusOr<NcclOperands> OperandsOf(const FlatCall& call, int compute_capability, int ranks);

// "ncclAllReduce", ...; of a barrier, which NCCL does not have, "".
const char* NcclFunction(Collective collective);

// Makes the sum of elements that `call` scales. The caller destroys `op`.
ncclResult_t MakeScaledSum(NcclApi& nccl, const FlatCall& call, ncclDataType_t type,
                           ncclComm_t comm, ncclRedOp_t* op);

// Calls NCCL's function of a collective, but not of a barrier. The arguments have been checked.
ncclResult_t CallNccl(NcclApi& nccl, const FlatCall& call, const NcclOperands& operands,
                      const void* input, void* output, ncclComm_t comm, cudaStream_t stream);

// The indices of the transfers that have elements.
std::vector<size_t> FilledIndices(absl::Span<const Transfer> transfers);

// Calls the transfers at the indices `which`, in one group. Empty ones are left out.
ncclResult_t CallNccl(NcclApi& nccl, absl::Span<const Transfer> transfers,
                      const std::vector<size_t>& which, ncclComm_t comm, cudaStream_t stream);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_CALL_H_
