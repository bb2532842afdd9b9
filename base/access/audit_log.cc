#include "base/access/audit_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/text/logging.h"

namespace cohort {

int64_t AuditLog::Take(Meter AuditLog::*which, int max_lines, Instant now) {
  MutexLock lock(&mutex_);
  Meter& meter = this->*which;
  if (now >= meter.second_ends) {
    meter.second_ends = now + absl::Seconds(1);
    meter.lines = 0;
  }
  ++meter.left_out;
  if (meter.lines >= max_lines) return 0;
  ++meter.lines;
  return std::exchange(meter.left_out, 0);
}

absl::Status AuditLog::Deny(const AccessNeed& need, const AuditedClient& client, Role has,
                            Instant now) {
  std::string where = absl::StrCat("tenant ", need.tenant);
  if (need.tenant == kAllTenants) where = "all tenants";
  if (need.tenant.empty()) where = "a tenant";
  return Deny(absl::StrCat(need.method, " needs the role ", RoleName(need.role), " in ", where,
                           ", and ", client.identity,
                           has == Role::kNone ? " has no role there"
                                              : absl::StrCat(" has the role ", RoleName(has))),
              client, now);
}

absl::Status AuditLog::Deny(const std::string& why, const AuditedClient& client, Instant now) {
  const int64_t times = Take(&AuditLog::denied_, 1, now);
  if (times > 0) {
    Log(LogLevel::kWarning, "denied a call",
        {{"why", why}, {"from", client.address}, {"times", times}});
  }
  return absl::PermissionDeniedError(why);
}

void AuditLog::Done(absl::string_view method, const AuditedClient& client, absl::string_view tenant,
                    absl::string_view object, Instant now) {
  const int64_t times = Take(&AuditLog::done_, kMaxLines, now);
  if (times == 0) return;
  Log(LogLevel::kInfo, "audit",
      {{"call", method},
       {"identity", client.identity},
       {"from", client.address},
       {"tenant", tenant},
       {"object", object},
       {"left_out", times - 1}});
}

}  // namespace cohort
