// Where NCCL comes into a group: ids of its communicators travel through the coordinator.
#ifndef COHORT_WORKER_GROUP_DEVICE_FORMATION_H_
#define COHORT_WORKER_GROUP_DEVICE_FORMATION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/nccl/nccl_api.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/group/id_exchange.h"

namespace cohort::worker {

struct DeviceFormationOptions {
  std::shared_ptr<NcclApi> nccl;
  int device = 0;
  absl::Duration timeout = absl::Seconds(60);
  // As of NcclFormation.
  NcclAgreement agreement = NcclAgreement::kAsync;
  std::shared_ptr<const NcclBoard> board;
  DeviceProgress* progress = nullptr;
};

// All ranks of the generation call it, with a communicator by way of the host that outlives
// what is formed, and is used by nothing else at the same time. Rank 0, and one of each further
// 128, makes an id and publishes it for this generation alone; all fetch all ids. Each tells the
// coordinator how far it is, so that `cohort who-is-missing` names who is stuck in it. Blocks for
// at most the timeout.
//
// Errors: DEADLINE_EXCEEDED (names whose id has not come, or says that NCCL does not get on), those
// of CUDA and NCCL, ABORTED (a rank could not form it, or is gone; named).
absl::StatusOr<std::unique_ptr<NcclCommunicator>> FormOnDevices(
    IdExchange& ids, Communicator* host, const DeviceFormationOptions& options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_DEVICE_FORMATION_H_
