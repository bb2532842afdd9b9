#include "worker/communicator/nccl/testing/fake_nccl_api.h"
#include "worker/group/testing/rank_program/nccl_of_program.h"

namespace cohort::testing {

// Its ranks are of one process, so a group has one.
absl::StatusOr<std::shared_ptr<worker::NcclApi>> NcclOfProgram() {
  return std::make_shared<worker::FakeNcclApi>();
}

}  // namespace cohort::testing
