#include "base/access/audit_log.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/text/logging.h"
#include "base/text/printable.h"

namespace cohort {

namespace {

// The most identities whose denials are counted one by one.
constexpr size_t kMaxIdentities = 1024;

// A client without rights chooses its identity's text, such as that of a wrong token.
const std::string& ClientOf(const AuditedClient& client) {
  const std::string& identity = client.payer.empty() ? client.identity : client.payer;
  return absl::StartsWith(identity, "a client ") ? client.address : identity;
}

}  // namespace

int64_t AuditLog::Take(Meter& meter, int max_lines, Instant now) {
  if (now >= meter.second_ends) {
    meter.second_ends = now + absl::Seconds(1);
    meter.lines = 0;
  }
  ++meter.left_out;
  if (meter.lines >= max_lines) return 0;
  ++meter.lines;
  return std::exchange(meter.left_out, 0);
}

int64_t AuditLog::TakeDenied(const std::string& client, Instant now) {
  MutexLock lock(&mutex_);
  if (denied_of_.size() >= kMaxIdentities && !denied_of_.contains(client)) {
    // Those that have been quiet for a second have no count to report.
    absl::erase_if(denied_of_, [now](const auto& entry) {
      return now >= entry.second.second_ends && entry.second.left_out == 0;
    });
    if (denied_of_.size() >= kMaxIdentities) denied_of_.clear();
  }
  Meter& meter = denied_of_[client];
  const int64_t times = Take(meter, 1, now);
  if (times == 0 || Take(denied_, kMaxDenied, now) > 0) return times;
  meter.left_out += times;
  return 0;
}

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
  if (const int64_t times = TakeDenied(ClientOf(client), now); times > 0) {
    Log(LogLevel::kWarning, "denied a call",
        {{"why", why}, {"identity", client.identity}, {"from", client.address}, {"times", times}});
  }
  return absl::PermissionDeniedError(why);
}

void AuditLog::Done(absl::string_view method, const AuditedClient& client, absl::string_view tenant,
                    absl::string_view object, Instant now) {
  int64_t times = 0;
  {
    MutexLock lock(&mutex_);
    times = Take(method == "Join" ? joins_ : others_, kMaxLines, now);
  }
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
