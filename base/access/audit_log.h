// Lines of the log about who did what: denied calls, and calls that matter to an audit.
#ifndef COHORT_BASE_ACCESS_AUDIT_LOG_H_
#define COHORT_BASE_ACCESS_AUDIT_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/role.h"
#include "base/clock.h"
#include "base/text/line_limits.h"

namespace cohort {

// The client of a call.
struct AuditedClient {
  std::string identity;
  std::string address;
  // The identity whose denials have a limit (Rights::payer); empty: `identity`.
  std::string payer;
};

// A call that needs rights.
struct AccessNeed {
  absl::string_view method;
  Role role = Role::kNone;
  absl::string_view tenant;  // may be kAllTenants; empty: any tenant
};

// Limits its lines, because clients cause them. Thread-safe.
class AuditLog {
 public:
  // Returns PERMISSION_DENIED, which names the method, the role, the tenant and the client.
  // `has`: the role of the client there. Logs at most one line a second for each identity (for each
  // address, if the client has no identity) and kMaxDenied lines a second in all. Further denials
  // are counted.
  static constexpr int kMaxDenied = 100;
  absl::Status Deny(const AccessNeed& need, const AuditedClient& client, Role has, Instant now);
  // The same for another reason, which names the client.
  absl::Status Deny(absl::string_view why, const AuditedClient& client, Instant now);
  // Logs a call that was done, such as "Evict". `object` says to what: "members 3 of group g". At
  // most kMaxLines lines in each second for Join and as many for the other methods together; the
  // next line has the number of those that are missing.
  static constexpr int kMaxLines = 1000;
  void Done(absl::string_view method, const AuditedClient& client, absl::string_view tenant,
            absl::string_view object, Instant now);

 private:
  LineLimits denied_{1, kMaxDenied, absl::Seconds(1)};           // by client
  LineLimits done_{kMaxLines, 2 * kMaxLines, absl::Seconds(1)};  // joins, and other methods
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_AUDIT_LOG_H_
