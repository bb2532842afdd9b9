// torch.distributed over its own NCCL backend or over Cohort, in a Python process that sleeps in a
// read while others are measured.
#ifndef COHORT_TESTS_BENCHMARK_GPU_TORCH_IMPLEMENTATION_H_
#define COHORT_TESTS_BENCHMARK_GPU_TORCH_IMPLEMENTATION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/communicator/nccl/benchmark/device_implementation.h"

namespace cohort::benchmark {

struct TorchOptions {
  std::string python;
  std::string script;  // torch_implementation.py
};

enum class TorchBackend { kNccl, kCohort };

// Errors: UNAVAILABLE (the process ended; has its standard error), DEADLINE_EXCEEDED (no answer
// came), INTERNAL (its answer is not the expected one).
absl::StatusOr<std::unique_ptr<DeviceImplementation>> MakeTorchImplementation(
    const TorchOptions& options, TorchBackend backend, int64_t most_bytes);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_GPU_TORCH_IMPLEMENTATION_H_
