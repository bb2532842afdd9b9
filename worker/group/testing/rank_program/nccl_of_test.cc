#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/group/testing/rank_program/nccl_of_program.h"

namespace cohort::testing {

// The fake's ranks are in one process, so a group of this program has one rank.
absl::StatusOr<std::shared_ptr<worker::NcclApi>> NcclOfProgram() {
  return std::make_shared<worker::FakeNcclApi>();
}

}  // namespace cohort::testing
