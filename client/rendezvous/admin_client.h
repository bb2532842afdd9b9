// Requests for operators: groups, missing members, waits, limits, drain, evict.
#ifndef COHORT_CLIENT_RENDEZVOUS_ADMIN_CLIENT_H_
#define COHORT_CLIENT_RENDEZVOUS_ADMIN_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/report/report.h"
#include "client/rendezvous/watcher.h"

namespace cohort::client {

struct DrainResult {
  int64_t released_count = 0;
  int64_t waiter_count = 0;
  int64_t group_count = 0;
};
// The use of the coordinator by one tenant. Its limits have the names max_tenant_*.
struct TenantUse {
  std::string tenant;
  int64_t bytes = 0;
  int64_t group_count = 0;
  int64_t member_count = 0;  // also members that left or were lost and keep their rank
  int64_t waiter_count = 0;
  int64_t stream_count = 0;
};
struct ServerStats {
  int64_t server_incarnation = 0;
  absl::Duration uptime;
  int64_t group_count = 0;
  int64_t member_count = 0;
  int64_t waiter_count = 0;
  int64_t bytes_held = 0;
  int64_t calls_total = 0;
  bool draining = false;
  std::string journal;
  std::string version;
  // The bytes that callers made the coordinator keep, by kind, the largest first; their sum; and
  // the limit. Empty and 0 if the coordinator does not report them.
  std::vector<std::pair<std::string, int64_t>> memory;
  int64_t charged_bytes = 0;
  int64_t max_bytes_held = 0;
  // The use of each tenant: at most 100, those with the most bytes first.
  std::vector<TenantUse> tenants;
  int64_t tenant_count = 0;  // of all tenants; 0 if the coordinator does not report them
};
// Whether a client may call a method, and why.
struct AccessAnswer {
  bool allowed = false;
  std::string method;    // such as "cohort.v1.GroupService/Join"
  std::string identity;  // of the client; empty: there is no access policy
  std::string tenant;    // in which the role counts; "*": all tenants
  std::string needs;     // the role that the method needs
  std::string role;      // the client's role
};

// Thread-safe. Every call is bounded by `timeout`.
class AdminClient {
 public:
  static std::unique_ptr<AdminClient> Create(std::shared_ptr<Connection> connection,
                                             absl::Duration timeout = absl::Seconds(10));
  virtual ~AdminClient() = default;

  // All groups of the tenant, by name, without members.
  virtual absl::StatusOr<std::vector<GroupInfo>> ListGroups() = 0;
  virtual absl::StatusOr<GroupInfo> GetGroup(absl::string_view group) = 0;
  // Calls `on_event` on the caller's thread until it returns false or `timeout` ends (then OK).
  virtual absl::Status WatchGroup(absl::string_view group, int64_t from_revision,
                                  const std::function<bool(const GroupEvent&)>& on_event,
                                  absl::Duration timeout) = 0;
  // The same events, which the consumer reads at its own pace: see watcher.h. It does not open yet,
  // and may outlive this client.
  virtual std::unique_ptr<GroupWatcher> NewGroupWatcher(absl::string_view group,
                                                        const WatcherOptions& options = {}) = 0;
  // Asks each member now for its tensor operations and waits for the answers: at most
  // `answer_timeout`, and a third of a second if all members run. `unanswered` lists the members
  // that did not answer in time. Zero: returns the known reports at once.
  virtual absl::StatusOr<WhoIsMissingReport> WhoIsMissing(
      absl::string_view group, absl::Duration answer_timeout = absl::ZeroDuration()) = 0;
  // `group` empty: all groups of the tenant.
  virtual absl::StatusOr<std::vector<ParkedCall>> DumpWaits(absl::string_view group) = 0;
  // Sets the given ones; returns all.
  virtual absl::StatusOr<std::map<std::string, int64_t>> Limits(
      const std::map<std::string, int64_t>& set) = 0;
  virtual absl::StatusOr<DrainResult> Drain(bool release_waiters, bool resume) = 0;
  virtual absl::Status Evict(absl::string_view group, absl::string_view member,
                             absl::string_view reason) = 0;
  virtual absl::Status CloseGroup(absl::string_view group, absl::string_view reason) = 0;
  virtual absl::StatusOr<ServerStats> Stats() = 0;
  // Whether a client with these names may call the method, such as "Join", in the tenant of the
  // connection. Without names: whether this client may. With names, this client must be an operator
  // in all tenants.
  virtual absl::StatusOr<AccessAnswer> CheckAccess(absl::string_view method,
                                                   const std::vector<std::string>& names) = 0;

 protected:
  AdminClient() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_ADMIN_CLIENT_H_
