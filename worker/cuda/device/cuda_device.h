// The GPUs that this process sees, and the current device of a thread.
#ifndef COHORT_WORKER_CUDA_DEVICE_CUDA_DEVICE_H_
#define COHORT_WORKER_CUDA_DEVICE_CUDA_DEVICE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::cuda {

struct DeviceInfo {
  // The number in this process; another process may number devices differently.
  int device = 0;
  std::string name;
  std::string pci_bus_id;  // 0000:81:00.0
  // The same in every process: GPU-6e3c...
  std::string uuid;
  size_t memory = 0;
  // 9.0 is {9, 0}.
  std::pair<int, int> compute_capability;
};

// Returns at least one. Errors: FAILED_PRECONDITION (no device, no driver or one too old; says what
// to do).
absl::StatusOr<int> DeviceCount();

// Errors: INVALID_ARGUMENT (no such device), and those of DeviceCount.
absl::StatusOr<DeviceInfo> DescribeDevice(int device);

// Returns the number of the device in this process. Errors: FAILED_PRECONDITION (this process does
// not see it), and those of DeviceCount.
absl::StatusOr<int> FindDevice(absl::string_view uuid);

// Whether kernels on `device` may access the memory of `peer`, over NVLink or PCIe. False for a
// device and itself. Errors: those of DescribeDevice.
absl::StatusOr<bool> CanAccessPeer(int device, int peer);

// Makes a device the calling thread's current one during its lifetime, and then restores the device
// before. It restores only a device that this process uses already, because a context of some
// hundred MB would be created on another. Every thread begins at device 0.
class CurrentDevice {
 public:
  // Errors: those of DescribeDevice.
  static absl::StatusOr<CurrentDevice> Set(int device);

  CurrentDevice(CurrentDevice&& other) noexcept
      : before_(std::exchange(other.before_, kNone)), device_(other.device_) {}
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  // Runs in the thread that called Set.
  ~CurrentDevice();

  int device() const { return device_; }

 private:
  // There is no device to restore.
  static constexpr int kNone = -1;

  CurrentDevice(int before, int device) : before_(before), device_(device) {}

  int before_;
  int device_;
};

// Prepares the thread for calls on `stream`, a cudaStream_t of `device`. The default streams (null,
// cudaStreamLegacy, cudaStreamPerThread) belong to the thread's current device, so this makes
// `device` the current one for them. Errors: those of DescribeDevice.
absl::StatusOr<std::optional<CurrentDevice>> AtDeviceOf(void* stream, int device);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_DEVICE_CUDA_DEVICE_H_
