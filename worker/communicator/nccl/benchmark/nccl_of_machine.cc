#include "worker/communicator/nccl/api/loaded_nccl_api.h"
#include "worker/communicator/nccl/benchmark/nccl_source.h"

namespace cohort::benchmark {

absl::StatusOr<std::shared_ptr<worker::NcclApi>> LinkedNccl() { return worker::LoadNccl(); }

}  // namespace cohort::benchmark
