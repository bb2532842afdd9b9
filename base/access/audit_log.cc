#include "base/access/audit_log.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/text/logging.h"
#include "base/text/printable.h"

namespace cohort {

namespace {

// A client without rights chooses its identity's text, such as that of a wrong token.
const std::string& ClientOf(const AuditedClient& client) {
  const std::string& identity = client.payer.empty() ? client.identity : client.payer;
  return absl::StartsWith(identity, "a client ") ? client.address : identity;
}

}  // namespace

absl::Status AuditLog::Deny(const AccessNeed& need, const AuditedClient& client, Role has,
                            Instant now) {
  std::string where = absl::StrCat("tenant ", need.tenant);
  if (need.tenant == kAllTenants) where = "all tenants";
  if (need.tenant.empty()) where = "a tenant";
  return Deny(absl::StrCat(need.method, " needs the role ", RoleName(need.role), " in ", where,
                           ", and ", Printable(client.identity),
                           has == Role::kNone ? " has no role there"
                                              : absl::StrCat(" has the role ", RoleName(has))),
              client, now);
}

absl::Status AuditLog::Deny(absl::string_view why, const AuditedClient& client, Instant now) {
  if (const int64_t times = denied_.Take(ClientOf(client), now); times > 0) {
    LogAlways(
        LogLevel::kWarning, "denied a call",
        {{"why", why}, {"identity", client.identity}, {"from", client.address}, {"times", times}});
  }
  return absl::PermissionDeniedError(why);
}

void AuditLog::Done(absl::string_view method, const AuditedClient& client, absl::string_view tenant,
                    absl::string_view object, Instant now) {
  const int64_t times = done_.Take(method == "Join" ? "joins" : "other methods", now);
  if (times == 0) return;
  LogAlways(LogLevel::kInfo, "audit",
            {{"call", method},
             {"identity", client.identity},
             {"from", client.address},
             {"tenant", tenant},
             {"object", object},
             {"left_out", times - 1}});
}

}  // namespace cohort
