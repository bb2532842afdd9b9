// Charges the answers that a client does not read.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_UNREAD_ANSWERS_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_UNREAD_ANSWERS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/framed_rpc/server/call_handler.h"
#include "base/status_macros.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/engine/engine.h"

namespace cohort::coordinator {

// The answers of one client. They may outlive the engine, and then may only end.
class UnreadAnswers final : public framed_rpc::UnreadCharge {
 public:
  // `account`: of the client's tenant, or that of all if the client has no tenant or several.
  UnreadAnswers(const Engine& engine, std::shared_ptr<MemoryAccount> account)
      : engine_(engine), account_(std::move(account)) {}
  ~UnreadAnswers() override { account_->Add(MemoryKind::kOutput, -bytes_); }

  // Errors: RESOURCE_EXHAUSTED (max_bytes_held, max_tenant_bytes_held).
  absl::Status Set(int64_t bytes) override {
    // So few unread bytes are no danger, and a client that is slow for a moment has few.
    constexpr int64_t kUncheckedBytes = int64_t{64} << 10;
    const int64_t more = bytes - bytes_;
    if (more > 0 && bytes > kUncheckedBytes) {
      COHORT_RETURN_IF_ERROR(CheckRoom(*account_, MemoryKind::kOutput, more, engine_.limits(),
                                       Share::kGoingOn));
    }
    account_->Add(MemoryKind::kOutput, more);
    bytes_ = bytes;
    return absl::OkStatus();
  }

 private:
  const Engine& engine_;
  const std::shared_ptr<MemoryAccount> account_;
  int64_t bytes_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_UNREAD_ANSWERS_H_
