// Charges the answers that a client does not read.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_UNREAD_ANSWERS_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_UNREAD_ANSWERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/engine/engine.h"

namespace cohort::coordinator {

// The unread bytes of one client's answers change from `before` to `bytes`. Uses `engine` only if
// they grow. Errors: RESOURCE_EXHAUSTED (max_bytes_held); the charge is then still `before`.
inline absl::Status ChargeUnread(const Engine& engine, MemoryAccount& account, int64_t before,
                                 int64_t bytes) {
  // So few unread bytes are no danger, and a client that is slow for a moment has few.
  constexpr int64_t kUncheckedBytes = int64_t{64} << 10;
  if (bytes > before && bytes > kUncheckedBytes) {
    COHORT_RETURN_IF_ERROR(
        engine.CheckRoom(MemoryKind::kOutput, bytes - before, Share::kGoingOn));
  }
  account.Add(MemoryKind::kOutput, bytes - before);
  return absl::OkStatus();
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_UNREAD_ANSWERS_H_
