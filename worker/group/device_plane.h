// What a group needs for tensors of GPUs. An interface, so that groups are also built where there
// is no CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_DEVICE_PLANE_H_
#define COHORT_WORKER_GROUP_DEVICE_PLANE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/device_progress.h"
#include "worker/communicator/nccl/nccl_board.h"
#include "worker/group/id_exchange.h"
#include "worker/group/tensor_verbs.h"

namespace cohort::worker {

// Calls that were captured, until their generation ends.
class DeviceReplay {
 public:
  virtual ~DeviceReplay() = default;

  // All ranks call it. Blocks; or, on a stream, returns once it is enqueued, with `timeout` as
  // OnStream's. Errors: those of verbs; FAILED_PRECONDITION (its generation has ended).
  virtual absl::Status Run(std::optional<void*> stream, absl::Duration timeout,
                           Instant deadline) = 0;
};

// A rank's GPU in one generation of a group.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;

  // To be told of the end.
  virtual Communicator& communicator() = 0;
  virtual TensorVerbs& verbs() = 0;
  // Whether calls that block meet on the host before they begin.
  virtual bool meets() const = 0;
  // Calls `body` with verbs whose work is enqueued on a stream of this process, and which return
  // then. `timeout`: what the work of each may take on the device.
  virtual absl::Status OnStream(void* stream, absl::Duration timeout,
                                absl::FunctionRef<absl::Status(TensorVerbs&)> body) = 0;
  // `body` calls verbs on the stream that it is given, by OnStream, and nothing of it is done: it
  // is kept, to be replayed. `digest`: of what they are, the same on all ranks.
  virtual absl::StatusOr<std::shared_ptr<DeviceReplay>> Capture(
      int calls, uint32_t digest, absl::FunctionRef<absl::Status(void* stream)> body) = 0;
  // Until all of that is done. Errors: DEADLINE_EXCEEDED, why the group has ended.
  virtual absl::Status AwaitStreams(Instant deadline) = 0;
};

struct DevicePlaneOptions {
  // Of device memory that is registered with the groups of this rank, for Allocate to take from as
  // long as there is room: NCCL moves it without copies. 0: none. Not so by default, since it asks
  // something of the program that other memory does not: in an operation all ranks' tensors lie in
  // it, or none, and all contiguous; and where every GPU reaches every other, at the same places,
  // as they do where ranks allocate the same in the same order. Whatever differs in that is
  // INVALID_ARGUMENT, and on streams ends the group. Of different sizes, it has no such places;
  // where a rank has none, it is memory as any other for all.
  size_t heap_bytes = 0;
};

// A rank's GPU. Shared by groups, and outlives what they form. Thread-safe.
class DevicePlane {
 public:
  virtual ~DevicePlane() = default;

  virtual Device device() const = 0;

  // Contiguous, of no defined value. Lives as long as the tensor or a copy, one of which is kept
  // until nothing that was enqueued uses it. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) = 0;

  // As client::Gpu::Copy.
  virtual absl::Status Copy(absl::Span<const client::TensorCopy> copies,
                            std::optional<void*> stream, absl::Duration timeout) = 0;

  // All ranks of a generation call it. `host` has the same ranks and outlives what is formed, which
  // uses it during its calls; so does `progress`, which is told how far the GPU is with them.
  // `board`: as Connections'. Errors: DEADLINE_EXCEEDED (names whose part has not come), ABORTED (a
  // rank could not, or is gone; named), those of CUDA and NCCL.
  virtual absl::StatusOr<std::unique_ptr<DeviceSide>> Form(IdExchange& ids, Communicator& host,
                                                           std::shared_ptr<const NcclBoard> board,
                                                           DeviceProgress* progress,
                                                           absl::Duration timeout) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_DEVICE_PLANE_H_
