#include "worker/group/bootstrap/worker_relayed_unique_ids.h"

#include <algorithm>

#include "base/status_macros.h"
#include "client/collective/remote/worker_session_impl.h"
#include "cohort/v1/worker.grpc.pb.h"

namespace cohort::worker {
namespace {

using Stub = v1::WorkerService::Stub;

// For calls that wait for no other rank: enough for a coordinator that is away for a moment.
constexpr absl::Duration kShortTimeout = absl::Seconds(30);
// Added to a timeout, because the worker's own call to the coordinator has a margin too.
constexpr absl::Duration kMargin = absl::Seconds(5);

// The wire has the same numbers, from 1.
v1::GroupInitPhase ToProto(UniqueIdExchange::Phase phase) {
  return static_cast<v1::GroupInitPhase>(static_cast<int>(phase) + 1);
}
static_assert(static_cast<int>(UniqueIdExchange::Phase::kFailed) + 1 ==
              v1::GROUP_INIT_PHASE_FAILED);

client::WorkerSessionImpl& SessionOf(const client::RemoteGroup& membership) {
  return client::WorkerSessionImpl::Of(membership.session());
}

}  // namespace

absl::Status WorkerRelayedUniqueIds::Publish(absl::string_view name,
                                             const std::vector<std::string>& ids) {
  v1::PublishUniqueIdsRequest request;
  request.set_group(membership_.number());
  request.set_generation(generation_);
  request.set_name(std::string(name));
  for (const std::string& id : ids) request.add_ids(id);
  v1::PublishUniqueIdsResponse response;
  return SessionOf(membership_).Call(&Stub::PublishUniqueIds, request, kShortTimeout, &response);
}

absl::StatusOr<std::vector<std::string>> WorkerRelayedUniqueIds::Fetch(absl::string_view name,
                                                                       absl::Duration timeout) {
  v1::FetchUniqueIdsRequest request;
  request.set_group(membership_.number());
  request.set_generation(generation_);
  request.set_name(std::string(name));
  const absl::Duration bounded =
      std::min(std::max(timeout, absl::Milliseconds(1)), absl::Hours(24));
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(bounded);
  request.mutable_timeout()->set_seconds(nanoseconds / 1000000000);
  request.mutable_timeout()->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
  v1::FetchUniqueIdsResponse response;
  COHORT_RETURN_IF_ERROR(
      SessionOf(membership_).Call(&Stub::FetchUniqueIds, request, bounded + kMargin, &response));
  return std::vector<std::string>(response.ids().begin(), response.ids().end());
}

absl::Status WorkerRelayedUniqueIds::Report(absl::string_view name, Phase phase,
                                            absl::string_view detail) {
  constexpr size_t kMostSaid = 512;  // as much as the coordinator gets
  v1::ReportGroupInitRequest request;
  request.set_group(membership_.number());
  request.set_generation(generation_);
  request.set_name(std::string(name));
  request.set_phase(ToProto(phase));
  request.set_detail(std::string(detail.substr(0, kMostSaid)));
  v1::ReportGroupInitResponse response;
  return SessionOf(membership_).Call(&Stub::ReportGroupInit, request, kShortTimeout, &response);
}

}  // namespace cohort::worker
