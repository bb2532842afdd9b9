// The input and the output of an implementation's calls, on device 0.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_DEVICE_BUFFERS_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_DEVICE_BUFFERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/streams/stream.h"

namespace cohort::benchmark {

inline constexpr int kBenchmarkDevice = 0;

// Movable.
class DeviceBuffers {
 public:
  static absl::StatusOr<DeviceBuffers> Allocate(int64_t most_bytes);

  // Numbers into the input's first `bytes`, and others into the output's.
  absl::Status Fill(int64_t bytes);
  // Whether the output is the input, as it is with one rank. Looks at the beginning and the end.
  // Errors: DATA_LOSS.
  absl::Status Verify(int64_t bytes) const;

  const void* input() const { return input_.data(); }
  void* output() const { return output_.data(); }

 private:
  DeviceBuffers(worker::cuda::Stream stream, worker::cuda::DeviceMemory input,
                worker::cuda::DeviceMemory output);

  worker::cuda::Stream stream_;
  worker::cuda::DeviceMemory input_;
  worker::cuda::DeviceMemory output_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_DEVICE_BUFFERS_H_
