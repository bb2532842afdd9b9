// Membership, views and reports of a group.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rendezvous/process_group/process_group_impl.h"

namespace cohort::client {

Instant ProcessGroupImpl::DeadlineAfter(absl::Duration timeout) const {
  return Clock::Steady().Now() +
         (timeout > absl::ZeroDuration() ? timeout : options_.timeout);
}

CallSpec ProcessGroupImpl::Spec(std::string what, absl::Duration timeout) const {
  CallSpec spec;
  spec.what = std::move(what);
  spec.deadline = DeadlineAfter(timeout);
  return spec;
}

absl::Status ProcessGroupImpl::CheckPeer(int rank, absl::string_view role) const {
  const int world_size = this->world_size();
  if (rank >= 0 && rank < world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " ", rank, " is not in 0..", world_size - 1));
}

absl::StatusOr<GroupInfo> ProcessGroupImpl::Describe() {
  CallSpec spec = Spec("get_group");
  spec.read = true;
  spec.in_any_state = true;
  spec.any_generation = true;
  v1::GetGroupRequest request;
  v1::GetGroupResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kGetGroup, request, &response, spec));
  return FromProto(response);
}

absl::StatusOr<GroupStats> ProcessGroupImpl::Stats() {
  CallSpec spec = Spec("stats");
  spec.read = true;
  v1::StatsRequest request;
  v1::StatsResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kStats, request, &response, spec));
  GroupStats stats;
  stats.object_count = response.object_count();
  stats.unacknowledged_count = response.unacknowledged_count();
  stats.open_round_count = response.open_round_count();
  stats.round_name_count = response.round_name_count();
  stats.waiter_count = response.waiter_count();
  stats.bytes_held = response.bytes_held();
  stats.barriers_released = response.barriers_released();
  stats.objects_expired = response.objects_expired();
  stats.key_count = response.key_count();
  return stats;
}

absl::Status ProcessGroupImpl::PublishUniqueIds(absl::string_view name,
                                                const std::vector<std::string>& ids) {
  v1::PublishRequest request;
  request.set_name(std::string(name));
  for (const std::string& id : ids) request.add_ids(id);
  v1::PublishResponse response;
  return session_->Call(method::kPublish, request, &response,
                        Spec(absl::StrCat("publish_unique_ids \"", name, "\"")));
}

absl::StatusOr<std::vector<std::string>> ProcessGroupImpl::FetchUniqueIds(absl::string_view name,
                                                                          absl::Duration timeout) {
  const CallSpec spec = Spec(absl::StrCat("fetch_unique_ids \"", name, "\""), timeout);
  v1::FetchRequest request;
  request.set_name(std::string(name));
  v1::FetchResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kFetch, request, &response, spec));
  const int64_t generation = request.scope().generation();
  if (!response.found()) return TimedOut(group(), generation, spec.what, response.missing());
  session_->AddReceipt(generation, response.receipt());
  return std::vector<std::string>(response.ids().begin(), response.ids().end());
}

absl::Status ProcessGroupImpl::ReportInit(absl::string_view name, InitPhase phase,
                                          absl::string_view detail) {
  v1::ReportInitRequest request;
  request.set_name(std::string(name));
  request.set_detail(std::string(detail.substr(0, 512)));
  // The wire has the same numbers, from 1.
  static_assert(static_cast<int>(InitPhase::kFailed) + 1 == v1::INIT_PHASE_FAILED);
  request.set_phase(static_cast<v1::InitPhase>(static_cast<int>(phase) + 1));
  v1::ReportInitResponse response;
  return session_->Call(method::kReportInit, request, &response,
                        Spec(absl::StrCat("report_init \"", name, "\"")));
}

void ProcessGroupImpl::ReportProgress(int64_t counter, absl::string_view operation) {
  session_->SetProgress(counter, operation);
}

absl::Status ProcessGroupImpl::ReportError(absl::string_view detail, bool fatal,
                                           const std::vector<RankRange>& suspected) {
  v1::ReportErrorRequest request;
  request.set_detail(std::string(detail.substr(0, 1024)));
  request.set_fatal(fatal);
  RangesToProto(suspected, request.mutable_suspected());
  v1::ReportErrorResponse response;
  return session_->Call(method::kReportError, request, &response, Spec("report_error"));
}

template <typename Response>
absl::StatusOr<ViewResult> ProcessGroupImpl::ReadView(const Response& response,
                                                      absl::string_view what) {
  switch (response.outcome()) {
    case v1::VIEW_OUTCOME_COMMITTED:
      session_->AdoptView(
          {response.generation(), response.rank(), response.world_size(), response.revision()});
      return ViewResult{response.generation(), response.rank(), response.world_size()};
    case v1::VIEW_OUTCOME_TIMED_OUT:
      return TimedOut(group(), generation(), std::string(what), response.missing());
    default: {
      v1::ErrorDetails details = MakeErrorDetails(group(), generation(), what);
      *details.mutable_cause() = response.cause();
      return StatusWithDetails(
          absl::StatusCode::kFailedPrecondition,
          absl::StrCat(what, " of group ", group(), ": refused; ", CauseText(response.cause())),
          details);
    }
  }
}

absl::StatusOr<ViewResult> ProcessGroupImpl::ProposeView(const std::vector<RankRange>& remove,
                                                         const std::vector<std::string>& add,
                                                         absl::Duration timeout, bool drop_silent) {
  CallSpec spec = Spec("propose_view", timeout);
  spec.in_any_state = true;
  v1::ProposeViewRequest request;
  RangesToProto(remove, request.mutable_remove());
  for (const std::string& member : add) request.add_add(member);
  request.set_silent(drop_silent ? v1::SILENT_POLICY_DROP : v1::SILENT_POLICY_FAIL);
  v1::ProposeViewResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kProposeView, request, &response, spec));
  return ReadView(response, spec.what);
}

absl::StatusOr<ViewResult> ProcessGroupImpl::AckView(int64_t proposal, bool accept,
                                                     absl::string_view reason,
                                                     absl::Duration timeout) {
  CallSpec spec = Spec(absl::StrCat("ack_view #", proposal), timeout);
  spec.in_any_state = true;
  v1::AckViewRequest request;
  request.set_proposal(proposal);
  request.set_refuse(!accept);
  request.set_reason(std::string(reason.substr(0, 512)));
  v1::AckViewResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kAckView, request, &response, spec));
  return ReadView(response, spec.what);
}

absl::Status ProcessGroupImpl::Leave(absl::string_view reason) {
  CallSpec spec = Spec("leave");
  spec.in_any_state = true;
  v1::LeaveRequest request;
  request.set_reason(std::string(reason.substr(0, 512)));
  v1::LeaveResponse response;
  absl::Status status = session_->Call(method::kLeave, request, &response, spec);
  // A member that lost its membership before has nothing left to leave either.
  if (status.ok() || absl::IsAborted(status) || absl::IsNotFound(status)) {
    session_->End(
        absl::FailedPreconditionError(absl::StrCat("group ", group(), ": this member has left")));
  }
  return status;
}

absl::Status ProcessGroupImpl::Close(absl::string_view reason) {
  CallSpec spec = Spec("close_group");
  spec.in_any_state = true;
  v1::CloseGroupRequest request;
  request.set_reason(std::string(reason.substr(0, 512)));
  v1::CloseGroupResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kCloseGroup, request, &response, spec));
  session_->End(absl::FailedPreconditionError(absl::StrCat("group ", group(), " was closed")));
  return absl::OkStatus();
}

}  // namespace cohort::client
