// Rounds: their numbers, the meaning of their ends, barriers and votes.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error_ranks.h"
#include "client/rendezvous/process_group/process_group_impl.h"

namespace cohort::client {
namespace {

// The timeout of barriers and votes; object rounds have the group's timeout.
constexpr absl::Duration kAgreementTimeout = absl::Seconds(30);
constexpr char kAliveName[] = "alive";

// The wire has the same numbers, from 1.
v1::VoteOp ToProto(VoteOp op) { return static_cast<v1::VoteOp>(static_cast<int>(op) + 1); }
static_assert(static_cast<int>(VoteOp::kEqual) + 1 == v1::VOTE_OP_EQUAL);

const char* OutcomeText(v1::RoundOutcome outcome) {
  switch (outcome) {
    case v1::ROUND_OUTCOME_RELEASED:
      return "released";
    case v1::ROUND_OUTCOME_TIMED_OUT:
      return "timed out";
    case v1::ROUND_OUTCOME_CANCELLED:
      return "cancelled";
    case v1::ROUND_OUTCOME_MISMATCH:
      return "mismatch";
    default:
      return "ended in a way unknown to this client";
  }
}

// The error text for a round that ended without this member.
std::string LateText(const v1::RoundResult& result) {
  return absl::StrCat(result.missing().expected_count() > 0
                          ? absl::StrCat(": ", ToString(FromProto(result.missing())))
                          : "",
                      "; this member came late, and its next call takes part in #",
                      result.next_number());
}

// Returns OK, or the error that the outcome of `result` stands for.
absl::Status OutcomeOf(const v1::RoundResult& result, absl::string_view group,
                       const RoundPlan& plan) {
  const std::string& operation = plan.spec.what;
  const int64_t generation = plan.ticket.generation;
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (result.outcome()) {
    case v1::ROUND_OUTCOME_RELEASED:
      return absl::OkStatus();
    case v1::ROUND_OUTCOME_TIMED_OUT:
      // A round that ended before this member came has a reason, but perhaps no report.
      if (!result.late() && (result.missing().expected_count() > 0 || result.reason().empty())) {
        return TimedOut(group, generation, operation, result.missing());
      }
      code = absl::StatusCode::kDeadlineExceeded;
      break;
    case v1::ROUND_OUTCOME_CANCELLED:
      code = absl::StatusCode::kCancelled;
      break;
    case v1::ROUND_OUTCOME_MISMATCH:
      code = absl::StatusCode::kFailedPrecondition;
      break;
    default:
      break;
  }
  return StatusWithDetails(
      code,
      absl::StrCat(operation, " of group ", group, ": ", OutcomeText(result.outcome()), ": ",
                   result.reason(), result.late() ? LateText(result) : ""),
      MakeErrorDetails(group, generation, operation));
}

absl::Status CheckVote(const RoundOptions& options) {
  if (options.digest.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("vote: a digest is not compared in votes");
}

// The attempts of barriers and votes. They borrow their arguments for the call of the attempt.

auto BarrierAttempt(const std::shared_ptr<GroupSession>& session, const RoundOptions& options) {
  return [&session, &options](CallMode mode, const RoundPlan& plan, auto end) {
    v1::BarrierRequest request;
    FillRound(plan, options, request.mutable_round());
    session->Run(mode, method::kBarrier, std::move(request), plan.spec,
                 [session, plan, end = std::move(end)](absl::Status called,
                                                       v1::BarrierResponse& response) {
                   RoundReport report;
                   called = EndRound(*session, called, response.result(), plan, &report);
                   end(std::move(called), std::move(report));
                 });
  };
}

auto VoteAttempt(const std::shared_ptr<GroupSession>& session, int64_t value, VoteOp op,
                 const RoundOptions& options) {
  return [&session, value, op, &options](CallMode mode, const RoundPlan& plan, auto end) {
    v1::VoteRequest request;
    request.set_name(options.name);
    request.set_number(plan.ticket.number);
    request.set_op(ToProto(op));
    request.set_value(value);
    RangesToProto(options.participants, request.mutable_participants());
    session->Run(mode, method::kVote, std::move(request), plan.spec,
                 [session, plan, end = std::move(end)](absl::Status called,
                                                       v1::VoteResponse& response) {
                   RoundReport report;
                   called = EndRound(*session, called, response.result(), plan, &report);
                   if (!called.ok()) return end(std::move(called), std::move(report));
                   session->AddReceipt(plan.ticket.generation, response.result().receipt());
                   end(VoteResult{response.value(), RangesFromProto(response.dissenting())},
                       std::move(report));
                 });
  };
}

}  // namespace

absl::Status TimedOut(absl::string_view group, int64_t generation, const std::string& operation,
                      const v1::MissingReport& missing) {
  const MissingReport report = FromProto(missing);
  return WithMissingRanks(
      StatusWithDetails(absl::StatusCode::kDeadlineExceeded,
                        absl::StrCat(operation, " of group ", group, ": ", ToString(report)),
                        MakeErrorDetails(group, generation, operation)),
      report.missing);
}

absl::Status EndRound(GroupSession& session, const absl::Status& called,
                      const v1::RoundResult& result, const RoundPlan& plan, RoundReport* report) {
  report->number = plan.ticket.number;
  if (absl::IsDataLoss(called)) {
    // The round has ended and its value is gone: the same number would fail for ever.
    v1::RoundResult ended;
    ended.set_next_number(plan.ticket.number + 1);
    session.ReturnNumber(plan.ticket, &ended);
    return called;
  }
  session.ReturnNumber(plan.ticket, called.ok() ? &result : nullptr);
  if (!called.ok()) return called;
  report->number = result.number();
  report->skew = FromProto(result.skew());
  if (result.has_missing()) report->missing = FromProto(result.missing());
  if (result.late()) report->missed_number = result.number();
  return OutcomeOf(result, session.group(), plan);
}

RoundPlan ProcessGroupImpl::Plan(absl::string_view kind, const RoundOptions& options,
                                 absl::Duration fallback) const {
  RoundPlan plan;
  plan.ticket = session_->TakeNumber(options.name);
  plan.spec = Spec(absl::StrCat(kind, " \"", options.name, "\" #", plan.ticket.number),
                   options.timeout > absl::ZeroDuration() ? options.timeout : fallback);
  plan.spec.on_waiting = &options.on_waiting;
  plan.spec.cancellation = options.cancellation;
  return plan;
}

absl::Status ProcessGroupImpl::Barrier(const RoundOptions& options, RoundReport* report) {
  return RunRound<absl::Status>("barrier", options, kAgreementTimeout, report,
                                BarrierAttempt(session_, options));
}

void ProcessGroupImpl::Barrier(const RoundOptions& options,
                               std::function<void(absl::Status, RoundReport)> done) {
  StartRound("barrier", options, kAgreementTimeout, BarrierAttempt(session_, options),
             std::move(done));
}

void ProcessGroupImpl::RunCancelBarrier(CallMode mode, absl::string_view name,
                                        absl::string_view reason, const AsyncOptions& options,
                                        StatusDone done) {
  v1::CancelBarrierRequest request;
  request.set_name(std::string(name));
  request.set_reason(std::string(reason));
  session_->Run(mode, method::kCancelBarrier, std::move(request),
                Spec(absl::StrCat("cancel_barrier \"", name, "\""), options),
                [done = std::move(done)](absl::Status status, v1::CancelBarrierResponse&) {
                  done(std::move(status));
                });
}

absl::Status ProcessGroupImpl::CancelBarrier(absl::string_view name, absl::string_view reason) {
  return ResultOf<absl::Status>(
      [&](auto done) { RunCancelBarrier(CallMode::kBlocking, name, reason, {}, done); });
}

void ProcessGroupImpl::CancelBarrier(absl::string_view name, absl::string_view reason,
                                     const AsyncOptions& options, StatusDone done) {
  RunCancelBarrier(CallMode::kAsync, name, reason, options, std::move(done));
}

absl::StatusOr<VoteResult> ProcessGroupImpl::Vote(int64_t value, VoteOp op,
                                                  const RoundOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckVote(options));
  return RunRound<absl::StatusOr<VoteResult>>("vote", options, kAgreementTimeout, nullptr,
                                              VoteAttempt(session_, value, op, options));
}

void ProcessGroupImpl::Vote(int64_t value, VoteOp op, const RoundOptions& options,
                            Done<VoteResult> done) {
  if (absl::Status valid = CheckVote(options); !valid.ok()) return Refuse(valid, done);
  StartRound("vote", options, kAgreementTimeout, VoteAttempt(session_, value, op, options),
             [done = std::move(done)](absl::StatusOr<VoteResult> result, RoundReport /*report*/) {
               done(std::move(result));
             });
}

void ProcessGroupImpl::RunAgreeAlive(CallMode mode, const AsyncOptions& options,
                                     Done<std::vector<RankRange>> done) {
  RoundOptions round;
  round.name = kAliveName;
  round.timeout = options.timeout;
  round.cancellation = options.cancellation;
  RoundPlan plan = Plan("agree_alive", round, kAgreementTimeout);
  plan.spec.in_any_state = true;
  plan.spec.on_waiting = nullptr;
  v1::AgreeAliveRequest request;
  request.set_name(round.name);
  request.set_number(plan.ticket.number);
  session_->Run(mode, method::kAgreeAlive, std::move(request), plan.spec,
                [session = session_, plan, done = std::move(done)](
                    absl::Status called, v1::AgreeAliveResponse& response) {
                  RoundReport report;
                  called = EndRound(*session, called, response.result(), plan, &report);
                  if (!called.ok()) return done(std::move(called));
                  session->AddReceipt(plan.ticket.generation, response.result().receipt());
                  done(RangesFromProto(response.alive()));
                });
}

absl::StatusOr<std::vector<RankRange>> ProcessGroupImpl::AgreeAlive(absl::Duration timeout) {
  return ResultOf<absl::StatusOr<std::vector<RankRange>>>(
      [&](auto done) { RunAgreeAlive(CallMode::kBlocking, {timeout, nullptr}, done); });
}

void ProcessGroupImpl::AgreeAlive(const AsyncOptions& options,
                                  Done<std::vector<RankRange>> done) {
  RunAgreeAlive(CallMode::kAsync, options, std::move(done));
}

}  // namespace cohort::client
