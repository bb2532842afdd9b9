// The client of one call, with its rights.
#ifndef COHORT_WORKER_DAEMON_ACCESS_CALLER_H_
#define COHORT_WORKER_DAEMON_ACCESS_CALLER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/audit_log.h"
#include "base/access/peer_access.h"
#include "base/access/role.h"
#include "grpcpp/server_context.h"

namespace cohort::worker {

// The least role that a method needs: a new one needs the role member. Methods of sessions need it
// in the tenants of the session's groups, too.
Role RoleOfMethod(absl::string_view method);

// Thread-safe.
class Caller {
 public:
  // A client with all rights.
  Caller() = default;

  // Whether there is an access policy.
  bool checked() const { return checked_; }
  // The name of the client; empty: there is no access policy.
  const std::string& identity() const { return client_.identity; }
  const std::string& address() const { return client_.address; }
  // The client's own tenant; empty: it has none.
  absl::string_view tenant() const {
    return rights_ == nullptr ? absl::string_view() : rights_->OwnTenant();
  }
  // Errors: PERMISSION_DENIED (the client does not have `role` in `tenant`; empty: in any tenant).
  // The log has it.
  absl::Status Require(Role role, absl::string_view tenant) const;
  bool Has(Role role, absl::string_view tenant) const;
  // Errors: UNAUTHENTICATED (the certificate of the client has ended). The log has it. A connection
  // outlives it, because sessions end with their connections.
  absl::Status CheckCertificate() const;
  // The tenant of a request that names `tenant`.
  std::string ResolveTenant(const std::string& tenant) const;
  // Returns PERMISSION_DENIED with `why`. The log has it.
  absl::Status Deny(const std::string& why) const;

 private:
  friend class WorkerAccess;
  bool checked_ = false;
  const char* method_ = "";
  AuditLog* audit_ = nullptr;  // null: nothing is logged
  AuditedClient client_;
  absl::Time certificate_ends_ = absl::InfiniteFuture();
  std::shared_ptr<const Rights> rights_;  // null: the client is gone
};

// Finds the rights of callers. Thread-safe.
class WorkerAccess {
 public:
  // `checks`: the listener has an access policy. Without one, each client has all rights.
  explicit WorkerAccess(bool checks) : checks_(checks) {}

  Caller CallerOf(const char* method, const grpc::ServerContextBase& context);
  // The names that the coordinator is told when the worker calls it for this client. Empty: there
  // is no access policy.
  std::vector<std::string> NamesOf(const grpc::ServerContextBase& context) const;
  // `access`: of a connection of framed RPC.
  Caller CallerOf(const char* method, PeerAccess* access);

 private:
  const bool checks_;
  AuditLog audit_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_ACCESS_CALLER_H_
