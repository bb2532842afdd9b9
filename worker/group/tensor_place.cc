#include "worker/group/tensor_place.h"

#include <cstring>

namespace cohort::worker {

absl::Status HostPlace::Clear(void* memory, int64_t bytes) {
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status HostPlace::Finish(Instant /*deadline*/) { return absl::OkStatus(); }

}  // namespace cohort::worker
