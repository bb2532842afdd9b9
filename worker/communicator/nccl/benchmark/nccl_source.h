// The NCCL that a program is linked with: the machine's, or a fake.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_NCCL_SOURCE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_NCCL_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/communicator/nccl/api/nccl_api.h"

namespace cohort::benchmark {

absl::StatusOr<std::shared_ptr<worker::NcclApi>> LinkedNccl();

}  // namespace cohort::benchmark

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_NCCL_SOURCE_H_
