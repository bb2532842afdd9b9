#include "worker/service/gpu_table.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr size_t kMaxName = 64;

// Whether kernels of several processes run on a device at once: without MPS they take turns of
// milliseconds. What its daemon listens at says so.
bool HasMps() {
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return access(absl::StrCat(folder == nullptr ? "/tmp/nvidia-mps" : folder, "/control").c_str(),
                F_OK) == 0;
}

}  // namespace

absl::StatusOr<GpuOfWorker> GpuTable::Find(const std::string& uuid) {
  if (uuid.empty() || uuid.size() > kMaxName) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(uuid.substr(0, kMaxName)), "\" names no GPU"));
  }
  MutexLock lock(&mutex_);
  const auto known = gpus_.find(uuid);
  if (known != gpus_.end()) return known->second;
  COHORT_ASSIGN_OR_RETURN(GpuOfWorker opened, open_(uuid));
  if (HasMps()) {
    Log(LogLevel::kInfo, "works on a GPU", {{"uuid", uuid}});
  } else {
    Log(LogLevel::kWarning,
        "works on a GPU in turns with its clients: start nvidia-cuda-mps-control, and their "
        "kernels and this worker's run at once",
        {{"uuid", uuid}});
  }
  return gpus_[uuid] = std::move(opened);
}

}  // namespace cohort::worker
