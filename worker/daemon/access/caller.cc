#include "worker/daemon/access/caller.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/port/peer/access_of_grpc_call.h"

namespace cohort::worker {

Role RoleOfMethod(absl::string_view method) {
  const bool reads = method == "GetWorker" || method == "GetFlightRecord";
  return reads ? Role::kObserver : Role::kMember;
}

absl::Status Caller::Require(Role role, absl::string_view tenant) const {
  if (Has(role, tenant)) return absl::OkStatus();
  Role has = Role::kNone;
  if (rights_ != nullptr) has = tenant.empty() ? rights_->HighestRole() : rights_->RoleIn(tenant);
  return audit_->Deny(AccessNeed{method_, role, tenant}, client_, has, Clock::Steady().Now());
}

bool Caller::Has(Role role, absl::string_view tenant) const {
  if (!checked()) return true;
  if (rights_ == nullptr) return false;
  return (tenant.empty() ? rights_->HighestRole() : rights_->RoleIn(tenant)) >= role;
}

absl::Status Caller::CheckCertificate() const {
  if (absl::Now() <= certificate_ends_) return absl::OkStatus();
  const absl::Status denied =
      Deny(absl::StrCat("the certificate of ", identity(), " has ended at ",
                        absl::FormatTime(certificate_ends_), ": connect again with a new one"));
  return absl::UnauthenticatedError(denied.message());
}

std::string Caller::ResolveTenant(const std::string& tenant) const {
  if (!checked() || rights_ == nullptr) return tenant;
  return std::string(
      rights_->ResolveTenant(tenant.empty() ? kDefaultTenant : absl::string_view(tenant)));
}

absl::Status Caller::Deny(const std::string& why) const {
  if (audit_ == nullptr) return absl::PermissionDeniedError(why);
  return audit_->Deny(why, client_, Clock::Steady().Now());
}

Caller WorkerAccess::CallerOf(const char* method, const grpc::ServerContextBase& context) {
  return CallerOf(method, checks_ ? AccessOfGrpcCall(context).get() : nullptr);
}

std::vector<std::string> WorkerAccess::NamesOf(const grpc::ServerContextBase& context) const {
  const std::shared_ptr<PeerAccess> access = checks_ ? AccessOfGrpcCall(context) : nullptr;
  return access == nullptr ? std::vector<std::string>() : access->Names(Clock::Steady().Now());
}

Caller WorkerAccess::CallerOf(const char* method, PeerAccess* access) {
  Caller caller;
  caller.audit_ = &audit_;
  if (!checks_) return caller;
  caller.checked_ = true;
  caller.method_ = method;
  if (access == nullptr) {
    caller.client_.identity = "a client that is gone";
    return caller;
  }
  caller.rights_ = access->Current(Clock::Steady().Now());
  caller.client_ = {*caller.rights_->identity, *access->address()};
  caller.certificate_ends_ = access->certificate_ends();
  return caller;
}

}  // namespace cohort::worker
