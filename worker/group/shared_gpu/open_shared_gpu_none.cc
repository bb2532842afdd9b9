#include "absl/strings/str_cat.h"
#include "worker/group/shared_gpu/open_shared_gpu.h"

namespace cohort::worker {
namespace {

constexpr char kWhy[] = ": this program was built without GPU code";

}  // namespace

absl::StatusOr<std::shared_ptr<client::Gpu>> OpenGpuOfClient(int device) {
  return absl::UnimplementedError(absl::StrCat("no GPU ", device, kWhy));
}

absl::StatusOr<GpuOfWorker> OpenGpuOfWorker(const std::string& uuid) {
  return absl::UnimplementedError(absl::StrCat("no GPU ", uuid, kWhy));
}

}  // namespace cohort::worker
