// An implementation in the benchmark of collectives on a GPU. It has one rank, so that the
// benchmark measures the time that each implementation adds to NCCL's own call.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_DEVICE_IMPLEMENTATION_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_DEVICE_IMPLEMENTATION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/collective/collective.h"
#include "worker/communicator/nccl/api/nccl_api.h"

namespace cohort::benchmark {

// The collectives that the benchmark measures.
inline constexpr Collective kDeviceOperations[] = {Collective::kAllReduce, Collective::kAllGather,
                                                   Collective::kReduceScatter,
                                                   Collective::kBroadcast};

// One thread.
class DeviceImplementation {
 public:
  virtual ~DeviceImplementation() = default;
  virtual const std::string& name() const = 0;

  // Sets the operation of the next calls: one of kDeviceOperations on `bytes` of f32, with separate
  // input and output.
  virtual absl::Status Prepare(Collective operation, int64_t bytes) = 0;
  // Each call is through before the next begins. How long all took.
  virtual absl::StatusOr<absl::Duration> RunBlocking(int calls) = 0;
  // Calls that do not wait for the device, which is waited for in the end.
  struct Queued {
    absl::Duration enqueued;  // until the last call returned
    absl::Duration done;      // until the device was through
  };
  // UNIMPLEMENTED: it has only calls that wait.
  virtual absl::StatusOr<Queued> RunQueued(int calls) = 0;
  // Whether the last call's result is right. Errors: DATA_LOSS.
  virtual absl::Status Verify() = 0;
};

// On device 0. `most_bytes`: of any Prepare.
absl::StatusOr<std::unique_ptr<DeviceImplementation>> MakeCohortImplementation(
    std::shared_ptr<worker::NcclApi> nccl, int64_t most_bytes);
// NCCL's functions on a stream, and nothing else.
absl::StatusOr<std::unique_ptr<DeviceImplementation>> MakeNcclImplementation(
    std::shared_ptr<worker::NcclApi> nccl, int64_t most_bytes);

// OK where there is a GPU; FAILED_PRECONDITION says why not.
absl::Status CheckForGpu();

}  // namespace cohort::benchmark

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_BENCHMARK_DEVICE_IMPLEMENTATION_H_
