#include "worker/communicator/nccl/api/loaded_nccl_api.h"
#include "worker/group/testing/rank_program/nccl_of_program.h"

namespace cohort::testing {

absl::StatusOr<std::shared_ptr<worker::NcclApi>> NcclOfProgram() { return worker::LoadNccl(); }

}  // namespace cohort::testing
