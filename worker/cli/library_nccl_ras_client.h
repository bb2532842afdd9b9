// The client of NCCL's RAS service on this machine.
#ifndef COHORT_WORKER_CLI_LIBRARY_NCCL_RAS_CLIENT_H_
#define COHORT_WORKER_CLI_LIBRARY_NCCL_RAS_CLIENT_H_

#include <memory>

#include "client/cli/clients/nccl_ras_client.h"

namespace cohort::worker {

std::unique_ptr<cli::NcclRasClient> MakeNcclRasClient();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_CLI_LIBRARY_NCCL_RAS_CLIENT_H_
