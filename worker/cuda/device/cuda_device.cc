#include "worker/cuda/device/cuda_device.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/device/driver_functions.h"

namespace cohort::worker::cuda {
namespace {

std::string Name(int device) { return absl::StrCat("CUDA device ", device); }

// Formats the UUID like nvidia-smi.
std::string FormatUuid(const cudaUUID_t& uuid) {
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  const absl::string_view text = hex;
  return absl::StrCat("GPU-", text.substr(0, 8), "-", text.substr(8, 4), "-", text.substr(12, 4),
                      "-", text.substr(16, 4), "-", text.substr(20));
}

// Whether this process uses the device; true if that is unknown.
bool IsInUse(int device) {
  const absl::StatusOr<const Driver*> driver = GetDriver();
  unsigned int flags = 0;
  int active = 1;
  if (driver.ok()) (*driver)->cuDevicePrimaryCtxGetState(device, &flags, &active);
  return active != 0;
}

}  // namespace

absl::StatusOr<int> DeviceCount() {
  int count = 0;
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaGetDeviceCount(&count)));
  return count;
}

absl::StatusOr<DeviceInfo> DescribeDevice(int device) {
  cudaDeviceProp properties;
  COHORT_RETURN_IF_ERROR(
      Of(Name(device), COHORT_CUDA_CALL(cudaGetDeviceProperties(&properties, device))));
  char bus[32] = "";
  COHORT_RETURN_IF_ERROR(
      Of(Name(device), COHORT_CUDA_CALL(cudaDeviceGetPCIBusId(bus, sizeof(bus), device))));
  DeviceInfo info;
  info.device = device;
  info.name = properties.name;
  info.pci_bus_id = absl::AsciiStrToLower(bus);
  info.uuid = FormatUuid(properties.uuid);
  info.memory = properties.totalGlobalMem;
  info.compute_capability = {properties.major, properties.minor};
  return info;
}

absl::StatusOr<int> FindDevice(absl::string_view uuid) {
  COHORT_ASSIGN_OR_RETURN(const int count, DeviceCount());
  for (int device = 0; device < count; ++device) {
    COHORT_ASSIGN_OR_RETURN(const DeviceInfo info, DescribeDevice(device));
    if (info.uuid == uuid) return device;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(uuid, " is not one of the ", count,
                   " GPUs that this process sees: check CUDA_VISIBLE_DEVICES and the devices of "
                   "the container"));
}

absl::StatusOr<bool> CanAccessPeer(int device, int peer) {
  int can = 0;
  COHORT_RETURN_IF_ERROR(Of(absl::StrCat(Name(device), " and ", peer),
                            COHORT_CUDA_CALL(cudaDeviceCanAccessPeer(&can, device, peer))));
  return can != 0;
}

absl::StatusOr<CurrentDevice> CurrentDevice::Set(int device) {
  int before = 0;
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaGetDevice(&before)));
  // Set even if it is the current device already: only an explicit call binds a new thread to it.
  COHORT_RETURN_IF_ERROR(Of(Name(device), COHORT_CUDA_CALL(cudaSetDevice(device))));
  return CurrentDevice(before == device ? kNone : before, device);
}

CurrentDevice::~CurrentDevice() {
  if (before_ == kNone || !IsInUse(before_)) return;
  LogIfError("a thread could not go back to its CUDA device",
             COHORT_CUDA_CALL(cudaSetDevice(before_)));
}

absl::StatusOr<std::optional<CurrentDevice>> AtDeviceOf(void* stream, int device) {
  std::optional<CurrentDevice> current;
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    COHORT_ASSIGN_OR_RETURN(CurrentDevice set, CurrentDevice::Set(device));
    current.emplace(std::move(set));
  }
  return current;
}

}  // namespace cohort::worker::cuda
