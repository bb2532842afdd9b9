#include "worker/communicator/nccl/benchmark/nccl_source.h"
#include "worker/communicator/nccl/testing/fake_nccl_api.h"

namespace cohort::benchmark {

absl::StatusOr<std::shared_ptr<worker::NcclApi>> LinkedNccl() {
  return std::make_shared<worker::FakeNcclApi>();
}

}  // namespace cohort::benchmark
