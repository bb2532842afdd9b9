// What NCCL on this machine says, by its RAS port.
#ifndef COHORT_WORKER_CLI_NCCL_WITNESS_H_
#define COHORT_WORKER_CLI_NCCL_WITNESS_H_

#include <memory>

#include "client/cli/nccl_witness.h"

namespace cohort::worker {

std::unique_ptr<cli::NcclWitness> MakeNcclWitness();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_CLI_NCCL_WITNESS_H_
