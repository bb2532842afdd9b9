#include "client/collective/remote/device_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/collective/remote/worker_session_impl.h"

namespace cohort::client {
namespace {

// Limits the worker's mapping of memory, which CUDA does.
constexpr absl::Duration kTimeout = absl::Seconds(10);

uintptr_t AddressOf(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data()); }

}  // namespace

v1::RegisterDeviceMemory ToProto(const DeviceMemory& memory) {
  v1::RegisterDeviceMemory message;
  message.set_device_uuid(memory.device_uuid);
  message.set_allocation_bytes(memory.allocation_bytes);
  message.set_offset(memory.offset);
  message.set_bytes(memory.bytes);
  message.set_legacy_handle(memory.legacy_handle);
  return message;
}

absl::StatusOr<Tensor> DeviceTensors::Allocate(Gpu& gpu, DataType type, const Shape& shape) {
  COHORT_ASSIGN_OR_RETURN(const Tensor memory, gpu.Allocate(type, shape));
  if (memory.count() == 0) return memory;
  COHORT_ASSIGN_OR_RETURN(const uint64_t tensor, Register(gpu, memory.data(), memory.bytes()));
  const uintptr_t begin = AddressOf(memory);
  {
    MutexLock lock(&mutex_);
    blocks_[begin] = {tensor, memory.bytes()};
  }
  // The worker unmaps the memory before this process frees it.
  std::shared_ptr<const void> owner(memory.data(), [session = session_.shared_from_this(), begin,
                                                    tensor, kept = memory.owner()](const void*) {
    DeviceTensors& all = session->device_tensors();
    {
      MutexLock lock(&all.mutex_);
      all.blocks_.erase(begin);
    }
    session->FreeTensor(tensor);
  });
  return Tensor(memory.data(), type, shape, std::move(owner), memory.device());
}

std::optional<DeviceTensors::Location> DeviceTensors::Find(const Tensor& tensor) const {
  const uintptr_t at = AddressOf(tensor);
  MutexLock lock(&mutex_);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return std::nullopt;
  --block;
  const auto offset = static_cast<int64_t>(at - block->first);
  const int64_t element = SizeOf(tensor.type());
  if (offset >= block->second.bytes || offset % element != 0) return std::nullopt;
  return Location{block->second.tensor, offset / element};
}

absl::StatusOr<DeviceTensors::Location> DeviceTensors::Register(Gpu& gpu, const Tensor& tensor) {
  if (tensor.device() != gpu.device()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.ToString(), ": this rank's GPU is ", gpu.device().ToString()));
  }
  int64_t lowest = 0;
  int64_t highest = 0;
  for (int dim = 0; dim < tensor.dims(); ++dim) {
    const auto at = static_cast<size_t>(dim);
    const int64_t reach = (tensor.shape()[at] - 1) * tensor.strides()[at];
    (reach < 0 ? lowest : highest) += reach;
  }
  const int64_t element = SizeOf(tensor.type());
  COHORT_ASSIGN_OR_RETURN(const uint64_t number,
                          Register(gpu, static_cast<char*>(tensor.data()) + lowest * element,
                                   (highest - lowest + 1) * element));
  return Location{number, -lowest};
}

absl::StatusOr<uint64_t> DeviceTensors::Register(Gpu& gpu, const void* memory, int64_t bytes) {
  AttachConnection* const attached = session_.attached();
  if (attached == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        session_.worker(),
        " shares no memory with this process, so none of a GPU: ", session_.why_not_attached()));
  }
  COHORT_ASSIGN_OR_RETURN(Gpu::Exported exported, gpu.Export(memory, bytes));
  v1::AttachRequest request;
  *request.mutable_register_device_memory() = ToProto(exported.memory);
  const int fd = exported.fd.get();
  COHORT_ASSIGN_OR_RETURN(
      const v1::AttachAnswer answer,
      attached->Ask(request, absl::MakeConstSpan(&fd, exported.fd.is_open() ? 1 : 0),
                    Clock::Steady().Now() + kTimeout));
  return answer.tensor();
}

}  // namespace cohort::client
