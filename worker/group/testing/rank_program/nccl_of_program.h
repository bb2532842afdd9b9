// The NCCL of a program: the linked file decides, nccl_of_machine.cc or nccl_of_test.cc.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_NCCL_OF_PROGRAM_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_NCCL_OF_PROGRAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/communicator/nccl/api/nccl_api.h"

namespace cohort::testing {

absl::StatusOr<std::shared_ptr<worker::NcclApi>> NcclOfProgram();

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_NCCL_OF_PROGRAM_H_
