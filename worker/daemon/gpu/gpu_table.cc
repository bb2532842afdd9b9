#include "worker/daemon/gpu/gpu_table.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/logging.h"

namespace cohort::worker {
namespace {

constexpr size_t kMaxName = 64;

// Whether kernels of several processes run on a device at the same time. Without MPS the processes
// get time slices of milliseconds. The control pipe exists while the MPS daemon runs.
bool HasMps() {
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return access(absl::StrCat(folder == nullptr ? "/tmp/nvidia-mps" : folder, "/control").c_str(),
                F_OK) == 0;
}

}  // namespace

std::shared_ptr<GpuTable::Place> GpuTable::PlaceOf(const std::string& uuid) {
  MutexLock lock(&mutex_);
  std::shared_ptr<Place>& place = places_[uuid];
  if (place == nullptr) place = std::make_shared<Place>();
  return place;
}

absl::StatusOr<GpuOfWorker> GpuTable::Find(const std::string& uuid) {
  if (uuid.empty() || uuid.size() > kMaxName) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(uuid.substr(0, kMaxName)), "\" names no GPU"));
  }
  while (true) {
    const std::shared_ptr<Place> place = PlaceOf(uuid);
    MutexLock lock(&place->mutex);
    if (place->gpu.has_value()) return *place->gpu;
    // Another call failed to open this place's GPU and removed the place: take the present one.
    if (!IsPlace(uuid, place)) continue;
    return Open(uuid, *place);
  }
}

bool GpuTable::IsPlace(const std::string& uuid, const std::shared_ptr<Place>& place) {
  MutexLock lock(&mutex_);
  const auto found = places_.find(uuid);
  return found != places_.end() && found->second == place;
}

absl::StatusOr<GpuOfWorker> GpuTable::Open(const std::string& uuid, Place& place) {
  absl::StatusOr<GpuOfWorker> opened = open_(uuid);
  if (!opened.ok()) {
    MutexLock lock(&mutex_);
    places_.erase(uuid);
  }
  COHORT_RETURN_IF_ERROR(opened.status());
  if (HasMps()) {
    Log(LogLevel::kInfo, "works on a GPU", {{"uuid", uuid}});
  } else {
    Log(LogLevel::kWarning,
        "shares a GPU in time slices with its clients: start nvidia-cuda-mps-control, and their "
        "kernels and this worker's run at once",
        {{"uuid", uuid}});
  }
  place.gpu = *std::move(opened);
  return *place.gpu;
}

}  // namespace cohort::worker
