// The implementation of process_group.h and async_process_group.h. Its state lives in its
// GroupSession; this class turns methods into calls.
//
// Each method builds a request, makes a call and reads the answer in a continuation; blocking and
// asynchronous forms differ only in the mode of the call. Values pass through payload_transfer.h
// before and after it. No continuation refers to this object, which may be destroyed before.
#ifndef COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_
#define COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/session/group_session.h"

namespace cohort::client {

// The number of a round, and the call that takes part in it.
struct RoundPlan {
  RoundTicket ticket;
  CallSpec spec;
};

// Called after the call of a round, with its answer if there is one: reads how the round ended, or
// gives its number back if it did not end. Fills `report`. Returns `called`, or the error that the
// outcome of `result` stands for.
absl::Status EndRound(GroupSession& session, const absl::Status& called,
                      const v1::RoundResult& result, const RoundPlan& plan, RoundReport* report);
// DEADLINE_EXCEEDED of an operation whose answer said TIMED_OUT.
absl::Status TimedOut(absl::string_view group, int64_t generation, const std::string& operation,
                      const v1::MissingReport& missing);

// Runs `start(done)`, whose `done(result)` runs in that call, and returns the result.
template <typename Result, typename Start>
Result ResultOf(const Start& start) {
  std::optional<Result> result;
  start([&result](Result value) { result.emplace(std::move(value)); });
  return *std::move(result);
}

class ProcessGroupImpl final : public ProcessGroup, public AsyncProcessGroup {
 public:
  ProcessGroupImpl(ProcessGroupOptions options, std::shared_ptr<GroupSession> session)
      : options_(std::make_shared<const ProcessGroupOptions>(std::move(options))),
        session_(std::move(session)),
        incarnation_(std::make_shared<std::atomic<int64_t>>(options_->incarnation)) {}
  ~ProcessGroupImpl() override {
    // The others get the reason.
    const absl::Status why =
        options_->cancellation != nullptr ? options_->cancellation->reason() : absl::OkStatus();
    session_->Destroy(why.ok() ? "destroyed" : why.message());
  }

  const std::string& group() const override { return session_->group(); }
  const std::string& member() const override { return session_->member(); }
  int rank() const override { return session_->position().rank; }
  int world_size() const override { return session_->position().world_size; }
  int64_t generation() const override { return session_->position().generation; }
  int64_t revision() const override { return session_->position().revision; }
  AsyncProcessGroup& async() override { return *this; }

  absl::StatusOr<GroupInfo> Describe() override;
  void Describe(const AsyncOptions& options, Done<GroupInfo> done) override;
  absl::StatusOr<WhoIsMissingReport> WhoIsMissing() override;
  void WhoIsMissing(const AsyncOptions& options, Done<WhoIsMissingReport> done) override;

  absl::Status Send(absl::string_view object, int dst, absl::string_view tag,
                    absl::Duration timeout) override;
  void Send(absl::string_view object, int dst, absl::string_view tag, const AsyncOptions& options,
            StatusDone done) override;
  absl::StatusOr<std::string> Receive(int src, absl::string_view tag,
                                      absl::Duration timeout) override;
  absl::StatusOr<ReceivedObject> ReceiveAny(absl::string_view tag, absl::Duration timeout) override;
  void Receive(std::optional<int> src, absl::string_view tag, const AsyncOptions& options,
               Done<ReceivedObject> done) override;
  absl::StatusOr<std::string> Broadcast(absl::string_view object, int root,
                                        const RoundOptions& options) override;
  void Broadcast(absl::string_view object, int root, const RoundOptions& options,
                 Done<std::string> done) override;
  absl::StatusOr<ObjectList> AllGather(absl::string_view object,
                                       const RoundOptions& options) override;
  void AllGather(absl::string_view object, const RoundOptions& options,
                 Done<ObjectList> done) override;
  absl::StatusOr<ObjectList> Gather(absl::string_view object, int root,
                                    const RoundOptions& options) override;
  void Gather(absl::string_view object, int root, const RoundOptions& options,
              Done<ObjectList> done) override;
  absl::StatusOr<std::string> Scatter(const std::vector<std::string>& objects, int root,
                                      const RoundOptions& options) override;
  void Scatter(const std::vector<std::string>& objects, int root, const RoundOptions& options,
               Done<std::string> done) override;
  absl::StatusOr<int64_t> ExpireData(std::optional<absl::Duration> older_than) override;
  void ExpireData(std::optional<absl::Duration> older_than, const AsyncOptions& options,
                  Done<int64_t> done) override;
  absl::StatusOr<GroupStats> Stats() override;

  absl::Status Barrier(const RoundOptions& options, RoundReport* report) override;
  void Barrier(const RoundOptions& options,
               std::function<void(absl::Status, RoundReport)> done) override;
  absl::Status CancelBarrier(absl::string_view name, absl::string_view reason) override;
  void CancelBarrier(absl::string_view name, absl::string_view reason, const AsyncOptions& options,
                     StatusDone done) override;
  absl::StatusOr<VoteResult> Vote(int64_t value, VoteOp op, const RoundOptions& options) override;
  void Vote(int64_t value, VoteOp op, const RoundOptions& options, Done<VoteResult> done) override;
  absl::StatusOr<std::vector<RankRange>> AgreeAlive(absl::Duration timeout) override;
  void AgreeAlive(const AsyncOptions& options, Done<std::vector<RankRange>> done) override;

  absl::Status PublishUniqueIds(absl::string_view name,
                                const std::vector<std::string>& ids) override;
  void PublishUniqueIds(absl::string_view name, const std::vector<std::string>& ids,
                        const AsyncOptions& options, StatusDone done) override;
  absl::StatusOr<std::vector<std::string>> FetchUniqueIds(absl::string_view name,
                                                          absl::Duration timeout) override;
  void FetchUniqueIds(absl::string_view name, const AsyncOptions& options,
                      Done<std::vector<std::string>> done) override;
  absl::Status ReportInit(absl::string_view name, InitPhase phase,
                          absl::string_view detail) override;

  void ReportProgress(int64_t counter, absl::string_view operation) override;
  absl::Status ReportError(absl::string_view detail, bool fatal,
                           const std::vector<RankRange>& suspected) override;
  void ReportError(absl::string_view detail, bool fatal, const std::vector<RankRange>& suspected,
                   const AsyncOptions& options, StatusDone done) override;
  absl::Status Rejoin(absl::Duration timeout) override;
  void Rejoin(const AsyncOptions& options, StatusDone done) override;
  absl::StatusOr<ViewResult> ProposeView(const std::vector<RankRange>& remove,
                                         const std::vector<std::string>& add,
                                         absl::Duration timeout, bool drop_silent) override;
  void ProposeView(const std::vector<RankRange>& remove, const std::vector<std::string>& add,
                   bool drop_silent, const AsyncOptions& options, Done<ViewResult> done) override;
  absl::StatusOr<ViewResult> AckView(int64_t proposal, bool accept, absl::string_view reason,
                                     absl::Duration timeout) override;
  void AckView(int64_t proposal, bool accept, absl::string_view reason,
               const AsyncOptions& options, Done<ViewResult> done) override;
  absl::Status Leave(absl::string_view reason) override;
  void Leave(absl::string_view reason, const AsyncOptions& options, StatusDone done) override;
  absl::Status Close(absl::string_view reason) override;
  void Close(absl::string_view reason, const AsyncOptions& options, StatusDone done) override;

 private:
  // Zero: the group's timeout.
  Instant DeadlineAfter(absl::Duration timeout) const;
  CallSpec Spec(std::string what, absl::Duration timeout = absl::ZeroDuration()) const;
  CallSpec Spec(std::string what, const AsyncOptions& options) const;
  absl::Status CheckPeer(int rank, absl::string_view role) const;
  absl::Status CheckDestination(int dst) const;
  // The root's own object; null on other ranks.
  absl::StatusOr<const std::string*> CheckScatter(const std::vector<std::string>& objects, int root,
                                                  const RoundOptions& options) const;

  // --- Each method runs in one of two modes: `done(result)` runs in the call, or later.

  template <typename M>
  void RunForStatus(CallMode mode, const M& method, typename M::Request request,
                    const CallSpec& spec, StatusDone done);
  // A question about the group, whatever its state.
  template <typename M, typename Result>
  void RunQuestion(CallMode mode, const M& method, std::string what, const AsyncOptions& options,
                   Done<Result> done);
  template <typename Then>
  void RunReceive(CallMode mode, std::optional<int> src, absl::string_view tag,
                  const AsyncOptions& options, Then done);
  void RunExpireData(CallMode mode, std::optional<absl::Duration> older_than,
                     const AsyncOptions& options, Done<int64_t> done);
  void RunCancelBarrier(CallMode mode, absl::string_view name, absl::string_view reason,
                        const AsyncOptions& options, StatusDone done);
  void RunAgreeAlive(CallMode mode, const AsyncOptions& options,
                     Done<std::vector<RankRange>> done);
  void RunPublishUniqueIds(CallMode mode, absl::string_view name,
                           const std::vector<std::string>& ids, const AsyncOptions& options,
                           StatusDone done);
  void RunFetchUniqueIds(CallMode mode, absl::string_view name, const AsyncOptions& options,
                         Done<std::vector<std::string>> done);
  void RunReportError(CallMode mode, absl::string_view detail, bool fatal,
                      const std::vector<RankRange>& suspected, const AsyncOptions& options,
                      StatusDone done);
  void RunRejoin(CallMode mode, const AsyncOptions& options, StatusDone done);
  void RunProposeView(CallMode mode, const std::vector<RankRange>& remove,
                      const std::vector<std::string>& add, bool drop_silent,
                      const AsyncOptions& options, Done<ViewResult> done);
  void RunAckView(CallMode mode, int64_t proposal, bool accept, absl::string_view reason,
                  const AsyncOptions& options, Done<ViewResult> done);
  void RunLeave(CallMode mode, absl::string_view reason, const AsyncOptions& options,
                StatusDone done);
  void RunClose(CallMode mode, absl::string_view reason, const AsyncOptions& options,
                StatusDone done);

  // --- Rounds. A round runs by `attempt(mode, plan, end)`, which calls `end(result, report)` once.

  // Takes a number. `fallback` is the timeout when the options have none.
  RoundPlan Plan(absl::string_view kind, const RoundOptions& options,
                 absl::Duration fallback) const;
  // Blocks. Calls `attempt` again with the next plan if it came late and the options say so.
  template <typename Result, typename Attempt>
  Result RunRound(absl::string_view kind, const RoundOptions& options, absl::Duration fallback,
                  RoundReport* report, const Attempt& attempt) const;
  // Does not block, and takes part in one round.
  template <typename Attempt, typename End>
  void StartRound(absl::string_view kind, const RoundOptions& options, absl::Duration fallback,
                  const Attempt& attempt, End end) const;
  // Runs `done(error)` on a thread of the library.
  template <typename Then>
  void Refuse(absl::Status error, Then done) const {
    session_->connection()->timers().Post(
        [done = std::move(done), error = std::move(error)] { done(error); });
  }

  const std::shared_ptr<const ProcessGroupOptions> options_;
  const std::shared_ptr<GroupSession> session_;
  const std::shared_ptr<std::atomic<int64_t>> incarnation_;
};

// --- process_group_impl_create.cc

// The request by which this member joins.
v1::JoinRequest MakeJoinRequest(const ProcessGroupOptions& options, const std::string& member,
                                int64_t incarnation);
CallSpec JoinSpec(const ProcessGroupOptions& options, absl::Duration timeout);
// OK: the membership was adopted.
absl::Status ReadJoin(const absl::Status& status, const v1::JoinResponse& response,
                      GroupSession& session);

template <typename Result, typename Attempt>
Result ProcessGroupImpl::RunRound(absl::string_view kind, const RoundOptions& options,
                                  absl::Duration fallback, RoundReport* report,
                                  const Attempt& attempt) const {
  RoundReport own;
  if (report == nullptr) report = &own;
  RoundPlan plan = Plan(kind, options, fallback);
  const Instant deadline = plan.spec.deadline;
  int64_t missed = 0;
  while (true) {
    std::optional<Result> result;
    attempt(CallMode::kBlocking, plan, [&](Result value, RoundReport end) {
      result.emplace(std::move(value));
      *report = std::move(end);
    });
    const bool late = report->missed_number != 0;
    if (missed == 0) missed = report->missed_number;
    report->missed_number = missed;
    if (!late || !options.catch_up || Clock::Steady().Now() >= deadline) return *std::move(result);
    plan = Plan(kind, options, fallback);
    plan.spec.deadline = deadline;
  }
}

template <typename Attempt, typename End>
void ProcessGroupImpl::StartRound(absl::string_view kind, const RoundOptions& options,
                                  absl::Duration fallback, const Attempt& attempt, End end) const {
  RoundPlan plan = Plan(kind, options, fallback);
  plan.spec.on_waiting = nullptr;
  attempt(CallMode::kAsync, plan, std::move(end));
}

inline void FillRound(const RoundPlan& plan, const RoundOptions& options, v1::Round* round) {
  round->set_name(options.name);
  round->set_number(plan.ticket.number);
  RangesToProto(options.participants, round->mutable_participants());
  round->set_digest(options.digest);
  round->set_refusal(options.refusal);
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_
