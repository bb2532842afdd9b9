// The GPUs that this process sees, and which of them the calling thread is at.
#ifndef COHORT_WORKER_CUDA_DEVICE_H_
#define COHORT_WORKER_CUDA_DEVICE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::cuda {

struct DeviceInfo {
  // As this process counts them; another may count differently.
  int device = 0;
  std::string name;
  std::string pci_bus_id;  // 0000:81:00.0
  // The same in every process: GPU-6e3c...
  std::string uuid;
  size_t memory = 0;
  // 9.0 is {9, 0}.
  std::pair<int, int> compute_capability;
};

// At least one. Errors: FAILED_PRECONDITION (no device, no driver or one too old; what to do).
absl::StatusOr<int> DeviceCount();

// Errors: INVALID_ARGUMENT (no such device), and those of DeviceCount.
absl::StatusOr<DeviceInfo> DescribeDevice(int device);

// Which one it is here. Errors: FAILED_PRECONDITION (this process does not see it), and those of
// DeviceCount.
absl::StatusOr<int> FindDevice(absl::string_view uuid);

// Whether kernels of `device` may read and write the memory of `peer`, as NVLink or PCIe lets them.
// Not its own. Errors: as DescribeDevice.
absl::StatusOr<bool> CanAccessPeer(int device, int peer);

struct MemoryUse {
  size_t free = 0;
  size_t total = 0;
};
// By all processes. Errors: as DescribeDevice.
absl::StatusOr<MemoryUse> DeviceMemoryUse(int device);

// The calling thread is at a device while it lasts, and then again where it was. For that alone no
// context is made on a device that this process does not use: every thread begins at device 0, and
// a process that works on another would take some hundred MB of it.
class CurrentDevice {
 public:
  // Errors: as DescribeDevice.
  static absl::StatusOr<CurrentDevice> Set(int device);

  CurrentDevice(CurrentDevice&& other) noexcept
      : before_(std::exchange(other.before_, kNone)), device_(other.device_) {}
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  // In the thread that called Set.
  ~CurrentDevice();

  int device() const { return device_; }

 private:
  // Nothing to go back to.
  static constexpr int kNone = -1;

  CurrentDevice(int before, int device) : before_(before), device_(device) {}

  int before_;
  int device_;
};

// For calls on `stream`, a cudaStream_t of `device`: the default ones, null, cudaStreamLegacy and
// cudaStreamPerThread, are those of the device at which the thread is, so the thread goes there.
// Errors: as DescribeDevice.
absl::StatusOr<std::optional<CurrentDevice>> AtDeviceOf(void* stream, int device);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_DEVICE_H_
