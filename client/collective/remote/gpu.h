// A GPU of this process, with the functions that a worker's groups need. An interface, because the
// client does not depend on CUDA (worker/group/gpu/open_gpu.h creates one).
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_GPU_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_GPU_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/tensor/tensor.h"
#include "base/unique_fd.h"
#include "client/collective/group.h"

namespace cohort::client {

// Growing numbers in host memory that two processes share: with them, streams of one process hold
// back streams of the other. The destructor waits for the enqueued work on the flags.
class StreamFlags {
 public:
  virtual ~StreamFlags() = default;

  // `stream` is a cudaStream_t of this process; null is the default stream. Await: the work that is
  // enqueued after it waits until flag `flag` is at least `number`. Set: the flag becomes `number`
  // once the stream gets there. Errors: those of CUDA.
  virtual absl::Status Await(void* stream, int flag, uint64_t number) = 0;
  virtual absl::Status Set(void* stream, int flag, uint64_t number) = 0;
  // Sets the flag from the host at once, so that all waits for it end.
  virtual void Release(int flag) = 0;
};

// Where another process finds memory of a device: RegisterDeviceMemory of attach.proto.
struct DeviceMemory {
  std::string device_uuid;
  // The size of CUDA's whole allocation, and the memory's offset in it.
  uint64_t allocation_bytes = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string legacy_handle;  // a cudaIpcMemHandle_t; empty: a descriptor goes with it
};

// Thread-safe.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual Device device() const = 0;
  // The same in every process. Errors: those of CUDA.
  virtual absl::StatusOr<std::string> Uuid() const = 0;

  // Returns a contiguous tensor with undefined values, in memory that Export takes. The memory
  // lives as long as the tensor or a copy. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (a negative
  // extent).
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) = 0;

  // Copies between memory of this device and of this process, or within either, in any layouts. On
  // `stream`, a cudaStream_t, it returns once all copies are enqueued; else when they are done, at
  // the latest after `timeout`. Errors: INVALID_ARGUMENT (another type or shape),
  // DEADLINE_EXCEEDED, those of CUDA.
  virtual absl::Status Copy(absl::Span<const TensorCopy> copies, std::optional<void*> stream,
                            absl::Duration timeout) = 0;

  // The data that another process needs to use memory of this device.
  struct Exported {
    DeviceMemory memory;
    UniqueFd fd;  // closed where it goes by a legacy handle
  };
  // Errors: INVALID_ARGUMENT (no memory of the device), FAILED_PRECONDITION (its allocator does not
  // allow sharing).
  virtual absl::StatusOr<Exported> Export(const void* memory, int64_t bytes) = 0;

  // Makes flags at the beginning of `memory`, which outlives them. `memory` begins with a page, and
  // no other object uses it. Errors: RESOURCE_EXHAUSTED, and those of CUDA.
  virtual absl::StatusOr<std::unique_ptr<StreamFlags>> Pin(void* memory, int64_t bytes) = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_GPU_H_
