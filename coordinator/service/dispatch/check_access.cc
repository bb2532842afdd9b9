// Whether a client may call a method: the question before a call, or after a refusal.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/access/audit_log.h"
#include "base/access/peer_access.h"
#include "base/access/role.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "cohort/v1/admin.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/method_table.h"

namespace cohort::coordinator {
namespace {

std::optional<Method> FindByName(absl::string_view name) {
  for (size_t i = 0; i < kMethodCount; ++i) {
    const MethodInfo& info = GetMethod(static_cast<Method>(i));
    if (absl::EqualsIgnoreCase(name, info.name) || name == info.path()) return info.method;
  }
  return std::nullopt;
}

// Limits, Drain and ServerStats concern all tenants.
bool IsOfAllTenants(Method method) {
  return GetMethod(method).decode == nullptr && method != Method::kUpload &&
         method != Method::kCheckAccess;
}

}  // namespace

absl::Status Dispatcher::CheckAccess(PeerAccess* access,
                                     google::protobuf::io::ZeroCopyInputStream* stream,
                                     MessageBytes* message) {
  v1::CheckAccessRequest request;
  if (!request.ParseFromZeroCopyStream(stream)) {
    return absl::InvalidArgumentError("the request is not a well-formed message of this method");
  }
  const std::optional<Method> method = FindByName(request.method());
  if (!method.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("method: there is no method ", Printable(request.method().substr(0, 128))));
  }
  v1::CheckAccessResponse response;
  response.set_method(GetMethod(*method).path());
  const Role needs = GetMethod(*method).role;
  response.set_needs(RoleName(needs));
  response.set_allowed(true);
  if (options_.checks_access && access != nullptr) {
    std::shared_ptr<const Rights> rights = access->Current(engine_.clock().Now());
    if (request.names_size() > 0) {
      if (rights->RoleIn(kAllTenants) < Role::kOperator) {
        return audit_.Deny({"CheckAccess for another client", Role::kOperator, kAllTenants},
                           {*rights->identity, *access->address()}, rights->RoleIn(kAllTenants),
                           engine_.clock().Now());
      }
      const std::vector<std::string> names(request.names().begin(), request.names().end());
      COHORT_ASSIGN_OR_RETURN(rights, access->RightsOf(names));
    }
    absl::string_view tenant = request.tenant().empty() ? kDefaultTenant : request.tenant();
    tenant = IsOfAllTenants(*method) ? kAllTenants : rights->ResolveTenant(tenant);
    const Role role =
        *method == Method::kCheckAccess ? rights->HighestRole() : rights->RoleIn(tenant);
    response.set_allowed(role >= needs);
    response.set_identity(*rights->identity);
    response.set_tenant(std::string(tenant));
    response.set_role(RoleName(role));
  }
  message->Append(response.SerializeAsString());
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
