// Membership, views and reports of a group.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rendezvous/process_group/process_group_impl.h"

namespace cohort::client {

Instant ProcessGroupImpl::DeadlineAfter(absl::Duration timeout) const {
  return Clock::Steady().Now() +
         (timeout > absl::ZeroDuration() ? timeout : options_->timeout);
}

CallSpec ProcessGroupImpl::Spec(std::string what, absl::Duration timeout) const {
  CallSpec spec;
  spec.what = std::move(what);
  spec.deadline = DeadlineAfter(timeout);
  return spec;
}

CallSpec ProcessGroupImpl::Spec(std::string what, const AsyncOptions& options) const {
  CallSpec spec = Spec(std::move(what), options.timeout);
  spec.cancellation = options.cancellation;
  return spec;
}

absl::Status ProcessGroupImpl::CheckPeer(int rank, absl::string_view role) const {
  const int world_size = this->world_size();
  if (rank >= 0 && rank < world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("group ", session_->group(), ": rank ", this->rank(), ": ", role, " ", rank,
                   " is not in 0..", world_size - 1));
}

template <typename M>
void ProcessGroupImpl::RunForStatus(CallMode mode, const M& method, typename M::Request request,
                                    const CallSpec& spec, StatusDone done) {
  session_->Run(mode, method, std::move(request), spec,
                [done = std::move(done)](absl::Status status, typename M::Response&) {
                  done(std::move(status));
                });
}

template <typename M, typename Result>
void ProcessGroupImpl::RunQuestion(CallMode mode, const M& method, std::string what,
                                   const AsyncOptions& options, Done<Result> done) {
  CallSpec spec = Spec(std::move(what), options);
  spec.read = true;
  spec.in_any_state = true;
  spec.any_generation = true;
  session_->Run(mode, method, typename M::Request(), spec,
                [done = std::move(done)](absl::Status status, typename M::Response& response) {
                  if (!status.ok()) return done(std::move(status));
                  done(FromProto(response));
                });
}

absl::StatusOr<GroupInfo> ProcessGroupImpl::Describe() {
  return ResultOf<absl::StatusOr<GroupInfo>>([&](Done<GroupInfo> done) {
    RunQuestion(CallMode::kBlocking, method::kGetGroup, "get_group", {}, std::move(done));
  });
}

void ProcessGroupImpl::Describe(const AsyncOptions& options, Done<GroupInfo> done) {
  RunQuestion(CallMode::kAsync, method::kGetGroup, "get_group", options, std::move(done));
}

absl::StatusOr<WhoIsMissingReport> ProcessGroupImpl::WhoIsMissing() {
  return ResultOf<absl::StatusOr<WhoIsMissingReport>>([&](Done<WhoIsMissingReport> done) {
    RunQuestion(CallMode::kBlocking, method::kWhoIsMissing, "who_is_missing", {}, std::move(done));
  });
}

void ProcessGroupImpl::WhoIsMissing(const AsyncOptions& options, Done<WhoIsMissingReport> done) {
  RunQuestion(CallMode::kAsync, method::kWhoIsMissing, "who_is_missing", options, std::move(done));
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

void ProcessGroupImpl::RunPublishUniqueIds(CallMode mode, absl::string_view name,
                                           const std::vector<std::string>& ids,
                                           const AsyncOptions& options, StatusDone done) {
  v1::PublishRequest request;
  request.set_name(std::string(name));
  for (const std::string& id : ids) request.add_ids(id);
  RunForStatus(mode, method::kPublish, std::move(request),
               Spec(absl::StrCat("publish_unique_ids \"", name, "\""), options), std::move(done));
}

absl::Status ProcessGroupImpl::PublishUniqueIds(absl::string_view name,
                                                const std::vector<std::string>& ids) {
  return ResultOf<absl::Status>(
      [&](auto done) { RunPublishUniqueIds(CallMode::kBlocking, name, ids, {}, done); });
}

void ProcessGroupImpl::PublishUniqueIds(absl::string_view name, const std::vector<std::string>& ids,
                                        const AsyncOptions& options, StatusDone done) {
  RunPublishUniqueIds(CallMode::kAsync, name, ids, options, std::move(done));
}

void ProcessGroupImpl::RunFetchUniqueIds(CallMode mode, absl::string_view name,
                                         const AsyncOptions& options,
                                         Done<std::vector<std::string>> done) {
  const CallSpec spec = Spec(absl::StrCat("fetch_unique_ids \"", name, "\""), options);
  const int64_t generation = session_->position().generation;
  v1::FetchRequest request;
  request.set_name(std::string(name));
  request.mutable_scope()->set_generation(generation);
  session_->Run(mode, method::kFetch, std::move(request), spec,
                [session = session_, spec, generation, done = std::move(done)](
                    absl::Status status, v1::FetchResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  if (!response.found()) {
                    return done(
                        TimedOut(session->group(), generation, spec.what, response.missing()));
                  }
                  session->AddReceipt(generation, response.receipt());
                  done(std::vector<std::string>(response.ids().begin(), response.ids().end()));
                });
}

absl::StatusOr<std::vector<std::string>> ProcessGroupImpl::FetchUniqueIds(absl::string_view name,
                                                                          absl::Duration timeout) {
  return ResultOf<absl::StatusOr<std::vector<std::string>>>([&](auto done) {
    RunFetchUniqueIds(CallMode::kBlocking, name, {timeout, nullptr}, done);
  });
}

void ProcessGroupImpl::FetchUniqueIds(absl::string_view name, const AsyncOptions& options,
                                      Done<std::vector<std::string>> done) {
  RunFetchUniqueIds(CallMode::kAsync, name, options, std::move(done));
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

void ProcessGroupImpl::RunReportError(CallMode mode, absl::string_view detail, bool fatal,
                                      const std::vector<RankRange>& suspected,
                                      const AsyncOptions& options, StatusDone done) {
  v1::ReportErrorRequest request;
  request.set_detail(std::string(detail.substr(0, 1024)));
  request.set_fatal(fatal);
  RangesToProto(suspected, request.mutable_suspected());
  RunForStatus(mode, method::kReportError, std::move(request), Spec("report_error", options),
               std::move(done));
}

absl::Status ProcessGroupImpl::ReportError(absl::string_view detail, bool fatal,
                                           const std::vector<RankRange>& suspected) {
  return ResultOf<absl::Status>(
      [&](auto done) { RunReportError(CallMode::kBlocking, detail, fatal, suspected, {}, done); });
}

void ProcessGroupImpl::ReportError(absl::string_view detail, bool fatal,
                                   const std::vector<RankRange>& suspected,
                                   const AsyncOptions& options, StatusDone done) {
  RunReportError(CallMode::kAsync, detail, fatal, suspected, options, std::move(done));
}

namespace {

// The new view, or the error that the outcome of `response` stands for.
template <typename Response>
absl::StatusOr<ViewResult> ReadView(GroupSession& session, const Response& response,
                                    absl::string_view what) {
  const int64_t generation = session.position().generation;
  switch (response.outcome()) {
    case v1::VIEW_OUTCOME_COMMITTED:
      session.AdoptView(
          {response.generation(), response.rank(), response.world_size(), response.revision()});
      return ViewResult{response.generation(), response.rank(), response.world_size()};
    case v1::VIEW_OUTCOME_TIMED_OUT:
      return TimedOut(session.group(), generation, std::string(what), response.missing());
    default: {
      v1::ErrorDetails details = MakeErrorDetails(session.group(), generation, what);
      *details.mutable_cause() = response.cause();
      return StatusWithDetails(
          absl::StatusCode::kFailedPrecondition,
          absl::StrCat(what, " of group ", session.group(), ": refused; ",
                       CauseText(response.cause())),
          details);
    }
  }
}

template <typename M>
void RunForView(CallMode mode, const std::shared_ptr<GroupSession>& session, const M& method,
                typename M::Request request, const CallSpec& spec, Done<ViewResult> done) {
  session->Run(mode, method, std::move(request), spec,
               [session, what = spec.what, done = std::move(done)](
                   absl::Status status, typename M::Response& response) {
                 if (!status.ok()) return done(std::move(status));
                 done(ReadView(*session, response, what));
               });
}

}  // namespace

void ProcessGroupImpl::RunProposeView(CallMode mode, const std::vector<RankRange>& remove,
                                      const std::vector<std::string>& add, bool drop_silent,
                                      const AsyncOptions& options, Done<ViewResult> done) {
  CallSpec spec = Spec("propose_view", options);
  spec.in_any_state = true;
  v1::ProposeViewRequest request;
  RangesToProto(remove, request.mutable_remove());
  for (const std::string& member : add) request.add_add(member);
  request.set_silent(drop_silent ? v1::SILENT_POLICY_DROP : v1::SILENT_POLICY_FAIL);
  RunForView(mode, session_, method::kProposeView, std::move(request), spec, std::move(done));
}

absl::StatusOr<ViewResult> ProcessGroupImpl::ProposeView(const std::vector<RankRange>& remove,
                                                         const std::vector<std::string>& add,
                                                         absl::Duration timeout, bool drop_silent) {
  return ResultOf<absl::StatusOr<ViewResult>>([&](auto done) {
    RunProposeView(CallMode::kBlocking, remove, add, drop_silent, {timeout, nullptr}, done);
  });
}

void ProcessGroupImpl::ProposeView(const std::vector<RankRange>& remove,
                                   const std::vector<std::string>& add, bool drop_silent,
                                   const AsyncOptions& options, Done<ViewResult> done) {
  RunProposeView(CallMode::kAsync, remove, add, drop_silent, options, std::move(done));
}

void ProcessGroupImpl::RunAckView(CallMode mode, int64_t proposal, bool accept,
                                  absl::string_view reason, const AsyncOptions& options,
                                  Done<ViewResult> done) {
  CallSpec spec = Spec(absl::StrCat("ack_view #", proposal), options);
  spec.in_any_state = true;
  v1::AckViewRequest request;
  request.set_proposal(proposal);
  request.set_refuse(!accept);
  request.set_reason(std::string(reason.substr(0, 512)));
  RunForView(mode, session_, method::kAckView, std::move(request), spec, std::move(done));
}

absl::StatusOr<ViewResult> ProcessGroupImpl::AckView(int64_t proposal, bool accept,
                                                     absl::string_view reason,
                                                     absl::Duration timeout) {
  return ResultOf<absl::StatusOr<ViewResult>>([&](auto done) {
    RunAckView(CallMode::kBlocking, proposal, accept, reason, {timeout, nullptr}, done);
  });
}

void ProcessGroupImpl::AckView(int64_t proposal, bool accept, absl::string_view reason,
                               const AsyncOptions& options, Done<ViewResult> done) {
  RunAckView(CallMode::kAsync, proposal, accept, reason, options, std::move(done));
}

void ProcessGroupImpl::RunLeave(CallMode mode, absl::string_view reason,
                                const AsyncOptions& options, StatusDone done) {
  CallSpec spec = Spec("leave", options);
  spec.in_any_state = true;
  v1::LeaveRequest request;
  request.set_reason(std::string(reason.substr(0, 512)));
  RunForStatus(mode, method::kLeave, std::move(request), spec,
               [session = session_, done = std::move(done)](absl::Status status) {
                 // A member that lost its membership before has nothing left to leave either.
                 if (status.ok() || absl::IsAborted(status) || absl::IsNotFound(status)) {
                   session->End(absl::FailedPreconditionError(
                       absl::StrCat("group ", session->group(), ": this member has left")));
                 }
                 done(std::move(status));
               });
}

absl::Status ProcessGroupImpl::Leave(absl::string_view reason) {
  return ResultOf<absl::Status>(
      [&](auto done) { RunLeave(CallMode::kBlocking, reason, {}, done); });
}

void ProcessGroupImpl::Leave(absl::string_view reason, const AsyncOptions& options,
                             StatusDone done) {
  RunLeave(CallMode::kAsync, reason, options, std::move(done));
}

void ProcessGroupImpl::RunClose(CallMode mode, absl::string_view reason,
                                const AsyncOptions& options, StatusDone done) {
  CallSpec spec = Spec("close_group", options);
  spec.in_any_state = true;
  v1::CloseGroupRequest request;
  request.set_reason(std::string(reason.substr(0, 512)));
  RunForStatus(mode, method::kCloseGroup, std::move(request), spec,
               [session = session_, done = std::move(done)](absl::Status status) {
                 if (status.ok()) {
                   session->End(absl::FailedPreconditionError(
                       absl::StrCat("group ", session->group(), " was closed")));
                 }
                 done(std::move(status));
               });
}

absl::Status ProcessGroupImpl::Close(absl::string_view reason) {
  return ResultOf<absl::Status>(
      [&](auto done) { RunClose(CallMode::kBlocking, reason, {}, done); });
}

void ProcessGroupImpl::Close(absl::string_view reason, const AsyncOptions& options,
                             StatusDone done) {
  RunClose(CallMode::kAsync, reason, options, std::move(done));
}

}  // namespace cohort::client
