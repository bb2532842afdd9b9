#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/benchmark/nccl_source.h"

namespace cohort::benchmark {

absl::StatusOr<std::shared_ptr<worker::NcclApi>> LinkedNccl() {
  return std::make_shared<worker::FakeNcclApi>();
}

}  // namespace cohort::benchmark
