#include "worker/group/collectives/tensor_location.h"

#include <cstring>

namespace cohort::worker {

absl::Status HostLocation::Clear(void* memory, int64_t bytes) {
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status HostLocation::Finish(Instant /*deadline*/) { return absl::OkStatus(); }

}  // namespace cohort::worker
