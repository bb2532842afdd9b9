// A group's interface to the GPUs of its ranks. It is abstract, so that groups are also built
// without a CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_GPU_GPU_CONTEXT_H_
#define COHORT_WORKER_GROUP_GPU_GPU_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/device_progress.h"
#include "worker/communicator/nccl/agreement/nccl_operation_log.h"
#include "worker/group/bootstrap/unique_id_exchange.h"
#include "worker/group/collectives/tensor_collectives.h"

namespace cohort::worker {

// Captured calls; usable until their generation ends.
class DeviceReplay {
 public:
  virtual ~DeviceReplay() = default;

  // Runs the calls; all ranks call it. Without `stream` it blocks until `deadline` at most. On a
  // stream it returns once the calls are enqueued; `timeout` is that of OnStream. Errors: those of
  // collectives; FAILED_PRECONDITION (the generation has ended).
  virtual absl::Status Run(std::optional<void*> stream, absl::Duration timeout,
                           Instant deadline) = 0;
};

// A rank's GPU in one generation of a group.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;

  // Abort on it ends calls in flight.
  virtual Communicator& communicator() = 0;
  virtual TensorCollectives& collectives() = 0;
  // Whether blocking calls begin with a barrier on the host.
  virtual bool has_host_barrier() const = 0;
  // Calls `body` with collectives that enqueue their work on a stream of this process and then
  // return. `timeout` limits the work of each call on the device.
  virtual absl::Status OnStream(void* stream, absl::Duration timeout,
                                absl::FunctionRef<absl::Status(TensorCollectives&)> body) = 0;
  // Takes the place of a call on `stream` that this rank cannot make, because of a wrong argument:
  // the ranks that make it get an error, and the group ends. Errors: those of a group that has
  // ended.
  virtual absl::Status Refuse(void* stream, absl::string_view why, Instant deadline) = 0;
  // Records the calls that `body` makes, by OnStream, on the stream that it gets; none of them
  // runs. The result replays them. `calls` is the number of collectives among them, and `digest`
  // describes these; both are the same on all ranks.
  virtual absl::StatusOr<std::shared_ptr<DeviceReplay>> Capture(
      int calls, uint32_t digest, absl::FunctionRef<absl::Status(void* stream)> body) = 0;
  // Waits until all work enqueued on streams is done. Errors: DEADLINE_EXCEEDED, the cause if the
  // group has ended.
  virtual absl::Status AwaitStreams(Instant deadline) = 0;
};

struct GpuContextOptions {
  // The bytes of device memory that is registered with this rank's groups. Allocate uses it while
  // there is room; NCCL moves it without copies. 0, the default: none.
  //
  // Registered memory has rules that other memory has not. In a collective, either all ranks'
  // tensors lie in it, or none; all are contiguous. If every GPU reaches every other, the tensors
  // lie at the same offsets. They do if all ranks make the same allocations in the same order. A
  // violation is INVALID_ARGUMENT; on a stream it ends the group. If the ranks' heaps differ in
  // size, equal offsets are not required. If a rank has no heap, all ranks' heaps are ordinary
  // memory.
  size_t heap_bytes = 0;
};

// A rank's GPU. Groups share it; it outlives everything that they form. Thread-safe.
class GpuContext {
 public:
  virtual ~GpuContext() = default;

  virtual Device device() const = 0;

  // Returns a contiguous tensor of undefined value. The memory lives as long as the tensor or a
  // copy of it. The caller keeps one until no enqueued work uses the memory. Errors:
  // RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) = 0;

  // Copies between memory of this device and of this process, or within either, in any layouts. On
  // `stream`, a cudaStream_t, it returns once all copies are enqueued; else when they are done, at
  // the latest after `timeout`. Errors: INVALID_ARGUMENT (another type or shape),
  // DEADLINE_EXCEEDED, those of CUDA.
  virtual absl::Status Copy(absl::Span<const client::TensorCopy> copies,
                            std::optional<void*> stream, absl::Duration timeout) = 0;

  // Waits until the work that has been enqueued on `stream`, a cudaStream_t, is done. Errors:
  // DEADLINE_EXCEEDED, those of CUDA.
  virtual absl::Status AwaitStream(void* stream, absl::Duration timeout) = 0;

  // Forms the generation's communicator on devices; all its ranks call it. `host` has the same
  // ranks and outlives the result, which uses it during its calls. So does `progress`, which learns
  // how far the GPU is with them. `operation_log` is that of Connections. Errors: DEADLINE_EXCEEDED
  // (an id has not come, with its rank), ABORTED (a rank could not form the communicator or is
  // gone, with its name), those of CUDA and NCCL.
  virtual absl::StatusOr<std::unique_ptr<DeviceSide>> Form(
      UniqueIdExchange& ids, Communicator& host,
      std::shared_ptr<const NcclOperationLog> operation_log, DeviceProgress* progress,
      absl::Duration timeout) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GPU_GPU_CONTEXT_H_
