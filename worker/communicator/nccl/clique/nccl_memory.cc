#include "worker/communicator/nccl/clique/nccl_memory.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "worker/communicator/nccl/api/nccl_error.h"
#include "worker/communicator/nccl/clique/nccl_device_lock.h"
#include "worker/cuda/device/cuda_device.h"

namespace cohort::worker {
namespace {

// The longest wait for another group's call of NCCL, at the end.
constexpr absl::Duration kTimeout = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::shared_ptr<NcclMemory>> NcclMemory::Allocate(std::shared_ptr<NcclApi> nccl,
                                                                 int device, size_t bytes,
                                                                 Instant deadline) {
  if (bytes == 0) return absl::InvalidArgumentError("memory for NCCL of no bytes");
  auto memory = absl::WrapUnique(new NcclMemory(std::move(nccl), device, bytes));
  NcclApi& api = *memory->nccl_;
  void* data = nullptr;
  absl::Status status;
  COHORT_RETURN_IF_ERROR(NcclDeviceLock::Run(device, deadline, [&] {
    status = NcclError(api, api.MemAlloc(&data, bytes), "ncclMemAlloc");
    return absl::OkStatus();
  }));
  if (status.ok()) {
    memory->data_ = static_cast<char*>(data);
    return memory;
  }
  // NCCL does not say whether it cannot at all or has no room; this does.
  absl::StatusOr<cuda::ShareableMemory> own = cuda::ShareableMemory::Allocate(device, bytes);
  if (!own.ok()) {
    return absl::Status(own.status().code(),
                        absl::StrCat(own.status().message(), "; before that, ", status.message()));
  }
  memory->own_ = *std::move(own);
  memory->data_ = memory->own_.data();
  return memory;
}

NcclMemory::~NcclMemory() {
  if (data_ == nullptr || own_.data() != nullptr) return;
  const absl::StatusOr<cuda::CurrentDevice> current = cuda::CurrentDevice::Set(device_);
  const absl::StatusOr<NcclDeviceLock::Guard> guard =
      NcclDeviceLock::Of(device_).Acquire(Clock::Steady().Now() + kTimeout);
  absl::Status status = guard.status();
  if (status.ok()) status = NcclError(*nccl_, nccl_->MemFree(data_), "ncclMemFree");
  if (status.ok()) return;
  Log(LogLevel::kWarning, "memory of NCCL's is not freed",
      {{"device", device_}, {"bytes", static_cast<int64_t>(size_)}, {"error", status.message()}});
}

}  // namespace cohort::worker
