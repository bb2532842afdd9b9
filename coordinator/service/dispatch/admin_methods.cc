#include "coordinator/service/dispatch/admin_methods.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "cohort/v1/admin.pb.h"
#include "coordinator/core/interface/limit_names.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kMaxTenantsShown = 100;
constexpr char kMalformed[] = "the request is not a well-formed message of this method";

}  // namespace

absl::Status RunLimits(Engine& engine, google::protobuf::io::ZeroCopyInputStream* stream,
                       MessageBytes* message, std::string* change) {
  v1::LimitsRequest request;
  if (!request.ParseFromZeroCopyStream(stream)) return absl::InvalidArgumentError(kMalformed);
  Limits limits = engine.limits();
  if (!request.set().empty()) {
    for (const auto& [name, value] : request.set()) {
      COHORT_RETURN_IF_ERROR(SetLimit(name, value, &limits));
    }
    engine.SetLimits(limits);
    const std::map<std::string, int64_t> set(request.set().begin(), request.set().end());
    *change = absl::StrCat("limits ", absl::StrJoin(set, " ", absl::PairFormatter("=")));
  }
  v1::LimitsResponse response;
  for (const LimitName& limit : LimitNames()) {
    (*response.mutable_limits())[limit.name] = limits.*limit.field;
  }
  message->Append(response.SerializeAsString());
  return absl::OkStatus();
}

absl::Status RunDrain(Engine& engine, google::protobuf::io::ZeroCopyInputStream* stream,
                      MessageBytes* message, std::string* change) {
  v1::DrainRequest request;
  if (!request.ParseFromZeroCopyStream(stream)) return absl::InvalidArgumentError(kMalformed);
  if (request.release_waiters() && request.resume()) {
    return absl::InvalidArgumentError("release_waiters and resume contradict each other");
  }
  const DrainResult result = engine.Drain(request.release_waiters(), request.resume());
  *change = request.resume() ? "the coordinator takes calls again" : "the coordinator drains";
  v1::DrainResponse response;
  response.set_released_count(result.released_count);
  response.set_waiter_count(result.waiter_count);
  response.set_group_count(result.group_count);
  message->Append(response.SerializeAsString());
  return absl::OkStatus();
}

absl::Status RunServerStats(Engine& engine, google::protobuf::io::ZeroCopyInputStream* stream,
                            MessageBytes* message) {
  v1::ServerStatsRequest request;
  if (!request.ParseFromZeroCopyStream(stream)) return absl::InvalidArgumentError(kMalformed);
  const EngineStats stats = engine.Stats();
  v1::ServerStatsResponse response;
  response.set_server_incarnation(stats.server_incarnation);
  absl::Duration rest = std::max(stats.uptime, absl::ZeroDuration());
  response.mutable_uptime()->set_seconds(absl::IDivDuration(rest, absl::Seconds(1), &rest));
  response.mutable_uptime()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  response.set_group_count(stats.total.group_count);
  response.set_member_count(stats.total.member_count);
  response.set_waiter_count(stats.total.waiter_count);
  response.set_bytes_held(stats.total.bytes_held);
  response.set_calls_total(stats.calls);
  response.set_draining(stats.draining);
  response.set_journal(stats.journal);
  response.set_version(kVersion);
  for (int kind = 0; kind < kMemoryKindCount; ++kind) {
    v1::MemoryUse* const use = response.add_memory();
    use->set_kind(MemoryKindName(static_cast<MemoryKind>(kind)));
    use->set_bytes(stats.memory[kind]);
  }
  std::stable_sort(
      response.mutable_memory()->begin(), response.mutable_memory()->end(),
      [](const v1::MemoryUse& a, const v1::MemoryUse& b) { return a.bytes() > b.bytes(); });
  response.set_charged_bytes(stats.charged_bytes);
  response.set_max_bytes_held(engine.limits().max_bytes_held);
  std::vector<std::shared_ptr<const MemoryAccount>> tenants = stats.tenants;
  response.set_tenant_count(static_cast<int64_t>(tenants.size()));
  std::stable_sort(tenants.begin(), tenants.end(),
                   [](const auto& a, const auto& b) { return a->held() > b->held(); });
  if (tenants.size() > kMaxTenantsShown) tenants.resize(kMaxTenantsShown);
  for (const auto& tenant : tenants) {
    v1::TenantUse* const use = response.add_tenants();
    use->set_tenant(tenant->tenant());
    use->set_bytes(tenant->held());
    use->set_group_count(tenant->count(QuotaKind::kGroups));
    use->set_member_count(tenant->count(QuotaKind::kMembers));
    use->set_waiter_count(tenant->count(QuotaKind::kWaiters));
    use->set_stream_count(tenant->count(QuotaKind::kStreams));
  }
  message->Append(response.SerializeAsString());
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
