// An open stream: counted for its tenant, and standing for a member.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_TENANT_STREAM_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_TENANT_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/engine/engine.h"

namespace cohort::coordinator {

// A stream of no tenant at first. It charges the whole account until its first request is read.
class TenantStream {
 public:
  TenantStream() = default;
  ~TenantStream() {
    if (account_ != nullptr) account_->Count(QuotaKind::kStreams, -1);
  }
  TenantStream(const TenantStream&) = delete;
  TenantStream& operator=(const TenantStream&) = delete;

  // The stream is of `tenant` from now on; call it once. Errors: RESOURCE_EXHAUSTED (names
  // max_tenant_streams, its value and the tenant).
  absl::Status Begin(Engine& engine, const std::string& tenant) {
    std::shared_ptr<MemoryAccount> account = engine.tenants().Of(tenant);
    COHORT_RETURN_IF_ERROR(CheckCount(*account, QuotaKind::kStreams, engine.limits()));
    account->Count(QuotaKind::kStreams, 1);
    account_ = std::move(account);
    return absl::OkStatus();
  }
  // Precondition: Begin has succeeded.
  MemoryAccount& account() { return *account_; }

 private:
  std::shared_ptr<MemoryAccount> account_;
};

// Tells the engine that a stream stands for the session of `caller` from now on or, with `closed`,
// no longer. `by_us`: the coordinator has ended the stream.
inline Call MakeAttachCall(const Caller& caller, int64_t stream, bool closed, bool by_us) {
  Call call;
  call.caller = caller;
  if (closed) {
    // Other steps have carried them.
    call.caller.acknowledged.clear();
    call.caller.abandoned.clear();
  }
  call.body = AttachCall{stream, closed, by_us};
  return call;
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_TENANT_STREAM_H_
