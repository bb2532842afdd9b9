#include "worker/group/shared_gpu/cuda_gpu.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/memory/ipc_memory.h"
#include "worker/cuda/memory/pinned_memory.h"
#include "worker/cuda/memory/shareable_memory.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/streams/stream_flag.h"
#include "worker/group/gpu/cuda_location.h"

namespace cohort::worker {
namespace {

// Larger than every number of a call, and near enough for AwaitFlag, which compares by difference.
constexpr uint64_t kFarAhead = uint64_t{1} << 62;

class CudaStreamFlags final : public client::StreamFlags {
 public:
  CudaStreamFlags(cuda::RegisteredMemory memory, int device)
      : memory_(std::move(memory)), device_(device) {}

  absl::Status Await(void* stream, int flag, uint64_t number) override {
    COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(stream, device_));
    COHORT_RETURN_IF_ERROR(CheckRuns(stream));
    return cuda::AwaitFlag(static_cast<cudaStream_t>(stream), OnDevice(flag), number);
  }
  absl::Status Set(void* stream, int flag, uint64_t number) override {
    COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(stream, device_));
    COHORT_RETURN_IF_ERROR(CheckRuns(stream));
    return cuda::SetFlag(static_cast<cudaStream_t>(stream), OnDevice(flag), number);
  }
  void Release(int flag) override {
    __atomic_store_n(reinterpret_cast<uint64_t*>(memory_.data()) + flag, kFarAhead,
                     __ATOMIC_RELEASE);
  }

 private:
  // A captured operation would set the same number at every replay.
  static absl::Status CheckRuns(void* stream) {
    COHORT_ASSIGN_OR_RETURN(const bool captured,
                            cuda::IsCaptured(static_cast<cudaStream_t>(stream)));
    if (!captured) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "a stream that is being captured cannot be ordered with another process's: take "
        "Group::Record");
  }
  uint64_t* OnDevice(int flag) const {
    return reinterpret_cast<uint64_t*>(memory_.device_data()) + flag;
  }

  const cuda::RegisteredMemory memory_;
  const int device_;
};

}  // namespace

absl::StatusOr<std::string> CudaGpu::Uuid() const {
  COHORT_ASSIGN_OR_RETURN(const cuda::DeviceInfo device, cuda::DescribeDevice(device_));
  return device.uuid;
}

absl::StatusOr<Tensor> CudaGpu::Allocate(DataType type, const Shape& shape) {
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of ", FormatShape(shape), ": an extent is negative"));
    }
  }
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  absl::StatusOr<cuda::ShareableMemory> memory = cuda::ShareableMemory::Allocate(device_, bytes);
  if (absl::IsUnimplemented(memory.status())) return AllocateOnDevice(device_, type, shape);
  COHORT_RETURN_IF_ERROR(memory.status());
  auto owner = std::make_shared<cuda::ShareableMemory>(*std::move(memory));
  char* const data = owner->data();
  return Tensor(data, type, shape, std::move(owner), device());
}

absl::StatusOr<client::Gpu::Exported> CudaGpu::Export(const void* memory, int64_t bytes) {
  COHORT_ASSIGN_OR_RETURN(cuda::ExportedMemory exported,
                          cuda::Export(memory, static_cast<size_t>(bytes)));
  Exported result;
  result.memory.device_uuid = exported.device_uuid;
  result.memory.allocation_bytes = exported.allocation_bytes;
  result.memory.offset = exported.offset;
  result.memory.bytes = exported.bytes;
  if (exported.kind == cuda::ExportedMemory::Kind::kLegacy) {
    result.memory.legacy_handle.assign(exported.legacy_handle.data(),
                                       exported.legacy_handle.size());
  } else {
    result.fd = std::move(exported.fd);
  }
  return result;
}

absl::StatusOr<std::unique_ptr<client::StreamFlags>> CudaGpu::Pin(void* memory, int64_t bytes) {
  COHORT_ASSIGN_OR_RETURN(const cuda::CurrentDevice current, cuda::CurrentDevice::Set(device_));
  COHORT_ASSIGN_OR_RETURN(cuda::RegisteredMemory registered,
                          cuda::RegisteredMemory::Register(memory, static_cast<size_t>(bytes)));
  return std::make_unique<CudaStreamFlags>(std::move(registered), device_);
}

absl::StatusOr<SharedGpu::Imported> CudaGpu::Import(const client::DeviceMemory& memory,
                                                    UniqueFd fd) {
  cuda::ExportedMemory exported;
  if (!memory.legacy_handle.empty()) {
    if (memory.legacy_handle.size() != exported.legacy_handle.size()) {
      return absl::InvalidArgumentError(absl::StrCat("a legacy handle of CUDA's has ",
                                                     exported.legacy_handle.size(), " bytes; ",
                                                     memory.legacy_handle.size(), " came"));
    }
    exported.kind = cuda::ExportedMemory::Kind::kLegacy;
    std::memcpy(exported.legacy_handle.data(), memory.legacy_handle.data(),
                exported.legacy_handle.size());
  }
  exported.fd = std::move(fd);
  exported.device_uuid = memory.device_uuid;
  exported.allocation_bytes = memory.allocation_bytes;
  exported.offset = memory.offset;
  exported.bytes = memory.bytes;
  COHORT_ASSIGN_OR_RETURN(cuda::ImportedMemory imported, cuda::ImportedMemory::Import(exported));
  if (imported.device() != device_) {
    return absl::InvalidArgumentError(absl::StrCat("memory of ", memory.device_uuid,
                                                   " is not on this rank's GPU, cuda:", device_));
  }
  auto owner = std::make_shared<cuda::ImportedMemory>(std::move(imported));
  Imported result;
  result.data = owner->data();
  result.bytes = static_cast<int64_t>(owner->size());
  result.owner = std::move(owner);
  return result;
}

absl::StatusOr<std::shared_ptr<void>> CudaGpu::NewStream() {
  COHORT_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device_));
  auto owner = std::make_shared<cuda::Stream>(std::move(stream));
  // Callers see the cudaStream_t itself.
  return std::shared_ptr<void>(owner, owner->get());
}

}  // namespace cohort::worker
