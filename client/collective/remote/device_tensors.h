// Memory of this process's GPUs that the worker of a session works with, too.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_DEVICE_TENSORS_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_DEVICE_TENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "base/threads/mutex.h"
#include "client/collective/remote/gpu.h"
#include "cohort/v1/attach.pb.h"

namespace cohort::client {

class WorkerSessionImpl;

v1::RegisterDeviceMemory ToProto(const DeviceMemory& memory);

// The worker knows tensors of Allocate as long as they live, and others for the time of a call. Of
// one session. Thread-safe.
class DeviceTensors {
 public:
  explicit DeviceTensors(WorkerSessionImpl& session) : session_(session) {}

  // Errors: those of Gpu::Allocate and Gpu::Export, and the worker's; FAILED_PRECONDITION (no
  // memory is shared with the worker).
  absl::StatusOr<Tensor> Allocate(Gpu& gpu, DataType type, const Shape& shape);

  // Where a tensor's first element lies, as the worker knows it.
  struct Location {
    uint64_t tensor = 0;
    int64_t first = 0;  // in elements
  };
  // Nothing: its memory is not of Allocate.
  std::optional<Location> Find(const Tensor& tensor) const;
  // Registers a tensor that Allocate did not make and that has elements. Free it with
  // WorkerSessionImpl::FreeTensor. Errors: as Allocate; INVALID_ARGUMENT (of another device).
  absl::StatusOr<Location> Register(Gpu& gpu, const Tensor& tensor);

 private:
  struct Block {
    uint64_t tensor = 0;
    int64_t bytes = 0;
  };

  absl::StatusOr<uint64_t> Register(Gpu& gpu, const void* memory, int64_t bytes);

  WorkerSessionImpl& session_;
  mutable Mutex mutex_;
  std::map<uintptr_t, Block> blocks_ ABSL_GUARDED_BY(mutex_);  // by where they begin
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_DEVICE_TENSORS_H_
