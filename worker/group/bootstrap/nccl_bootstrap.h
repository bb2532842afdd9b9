// Forms NCCL's communicators in a group: their ids travel through the coordinator.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_NCCL_BOOTSTRAP_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_NCCL_BOOTSTRAP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/nccl/api/nccl_api.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/group/bootstrap/unique_id_exchange.h"

namespace cohort::worker {

struct NcclBootstrapOptions {
  std::shared_ptr<NcclApi> nccl;
  int device = 0;
  absl::Duration timeout = absl::Seconds(60);
  // See NcclCommunicatorInit::agreement.
  NcclAgreement agreement = NcclAgreement::kAsync;
  std::shared_ptr<const NcclOperationLog> operation_log;
  DeviceProgress* progress = nullptr;
};

// All ranks of the generation call it. `host` is a host communicator of the same ranks. It outlives
// the result, and nothing else uses it at the same time. Rank 0, and one rank of each further 128,
// makes an id and publishes it for this generation alone; all ranks fetch all ids. Each rank
// reports its phase to the coordinator, so that `cohort who-is-missing` names the ranks that are
// stuck. Blocks for at most the timeout.
//
// Errors: DEADLINE_EXCEEDED (an id has not come, with its rank; NCCL makes no progress), ABORTED (a
// rank could not form the communicator or is gone, with its name), those of CUDA and NCCL.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> BootstrapNccl(
    UniqueIdExchange& ids, Communicator* host, const NcclBootstrapOptions& options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_NCCL_BOOTSTRAP_H_
