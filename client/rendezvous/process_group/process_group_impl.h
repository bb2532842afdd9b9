// The implementation of process_group.h. Its state lives in its GroupSession; this class turns
// methods into calls.
//
// Each collective method builds a request, makes a call and reads the answer; blocking and
// asynchronous forms differ only in the call. Values pass through payload_transfer.h before and
// after it.
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

class ProcessGroupImpl final : public ProcessGroup {
 public:
  ProcessGroupImpl(ProcessGroupOptions options, std::shared_ptr<GroupSession> session)
      : options_(std::move(options)),
        session_(std::move(session)),
        incarnation_(options_.incarnation) {}
  ~ProcessGroupImpl() override {
    // The others get the reason.
    const absl::Status why =
        options_.cancellation != nullptr ? options_.cancellation->reason() : absl::OkStatus();
    session_->Destroy(why.ok() ? "destroyed" : why.message());
  }

  const std::string& group() const override { return session_->group(); }
  const std::string& member() const override { return session_->member(); }
  int rank() const override { return session_->position().rank; }
  int world_size() const override { return session_->position().world_size; }
  int64_t generation() const override { return session_->position().generation; }
  int64_t revision() const override { return session_->position().revision; }
  absl::StatusOr<GroupInfo> Describe() override;

  absl::Status Send(absl::string_view object, int dst, absl::string_view tag,
                    absl::Duration timeout) override;
  absl::StatusOr<std::string> Receive(int src, absl::string_view tag,
                                      absl::Duration timeout) override;
  absl::StatusOr<ReceivedObject> ReceiveAny(absl::string_view tag, absl::Duration timeout) override;
  absl::StatusOr<std::string> Broadcast(absl::string_view object, int root,
                                        const RoundOptions& options) override;
  absl::StatusOr<ObjectList> AllGather(absl::string_view object,
                                       const RoundOptions& options) override;
  absl::StatusOr<ObjectList> Gather(absl::string_view object, int root,
                                    const RoundOptions& options) override;
  absl::StatusOr<std::string> Scatter(const std::vector<std::string>& objects, int root,
                                      const RoundOptions& options) override;
  absl::StatusOr<int64_t> ExpireData(std::optional<absl::Duration> older_than) override;
  absl::StatusOr<GroupStats> Stats() override;

  absl::Status Barrier(const RoundOptions& options, RoundReport* report) override;
  absl::Status CancelBarrier(absl::string_view name, absl::string_view reason) override;
  absl::StatusOr<VoteResult> Vote(int64_t value, VoteOp op, const RoundOptions& options) override;
  absl::StatusOr<std::vector<RankRange>> AgreeAlive(absl::Duration timeout) override;

  void BarrierAsync(const RoundOptions& options,
                    std::function<void(absl::Status, RoundReport)> done) override;
  void AllGatherAsync(absl::string_view object, const RoundOptions& options,
                      std::function<void(absl::StatusOr<ObjectList>)> done) override;
  void SendAsync(absl::string_view object, int dst, absl::string_view tag,
                 std::function<void(absl::Status)> done) override;
  void ReceiveAsync(std::optional<int> src, absl::string_view tag, absl::Duration timeout,
                    std::function<void(absl::StatusOr<ReceivedObject>)> done) override;

  absl::Status PublishUniqueIds(absl::string_view name,
                                const std::vector<std::string>& ids) override;
  absl::StatusOr<std::vector<std::string>> FetchUniqueIds(absl::string_view name,
                                                          absl::Duration timeout) override;
  absl::Status ReportInit(absl::string_view name, InitPhase phase,
                          absl::string_view detail) override;

  void ReportProgress(int64_t counter, absl::string_view operation) override;
  absl::Status ReportError(absl::string_view detail, bool fatal,
                           const std::vector<RankRange>& suspected) override;
  absl::Status Rejoin(absl::Duration timeout) override;
  absl::StatusOr<ViewResult> ProposeView(const std::vector<RankRange>& remove,
                                         const std::vector<std::string>& add,
                                         absl::Duration timeout, bool drop_silent) override;
  absl::StatusOr<ViewResult> AckView(int64_t proposal, bool accept, absl::string_view reason,
                                     absl::Duration timeout) override;
  absl::Status Leave(absl::string_view reason) override;
  absl::Status Close(absl::string_view reason) override;

 private:
  // Zero: the group's timeout.
  Instant DeadlineAfter(absl::Duration timeout) const;
  CallSpec Spec(std::string what, absl::Duration timeout = absl::ZeroDuration()) const;
  absl::Status CheckPeer(int rank, absl::string_view role) const;
  absl::Status CheckDestination(int dst) const;

  // Takes a number. `fallback` is the timeout when the options have none.
  RoundPlan Plan(absl::string_view kind, const RoundOptions& options,
                 absl::Duration fallback) const;
  // Takes part in a round by `attempt`, which is called again with the next plan when it came late
  // and the options say so. Calls it as absl::Status(const RoundPlan&, RoundReport*).
  template <typename Attempt>
  absl::Status RunRound(absl::string_view kind, const RoundOptions& options,
                        absl::Duration fallback, RoundReport* report, const Attempt& attempt) const;
  absl::StatusOr<ReceivedObject> ReceiveFrom(std::optional<int> src, absl::string_view tag,
                                             absl::Duration timeout);
  template <typename Response>
  absl::StatusOr<ViewResult> ReadView(const Response& response, absl::string_view what);

  const ProcessGroupOptions options_;
  const std::shared_ptr<GroupSession> session_;
  std::atomic<int64_t> incarnation_;
};

// --- process_group_impl_create.cc

// The request by which this member joins.
v1::JoinRequest MakeJoinRequest(const ProcessGroupOptions& options, const std::string& member,
                                int64_t incarnation);
CallSpec JoinSpec(const ProcessGroupOptions& options, absl::Duration timeout);
// OK: the membership was adopted.
absl::Status ReadJoin(const absl::Status& status, const v1::JoinResponse& response,
                      GroupSession& session);

template <typename Attempt>
absl::Status ProcessGroupImpl::RunRound(absl::string_view kind, const RoundOptions& options,
                                        absl::Duration fallback, RoundReport* report,
                                        const Attempt& attempt) const {
  RoundReport own;
  if (report == nullptr) report = &own;
  RoundPlan plan = Plan(kind, options, fallback);
  const Instant deadline = plan.spec.deadline;
  int64_t missed = 0;
  while (true) {
    *report = RoundReport();
    absl::Status status = attempt(plan, report);
    const bool late = report->missed_number != 0;
    if (missed == 0) missed = report->missed_number;
    report->missed_number = missed;
    if (!late || !options.catch_up || Clock::Steady().Now() >= deadline) return status;
    plan = Plan(kind, options, fallback);
    plan.spec.deadline = deadline;
  }
}

inline void FillRound(const RoundPlan& plan, const RoundOptions& options, v1::Round* round) {
  round->set_name(options.name);
  round->set_number(plan.ticket.number);
  RangesToProto(options.participants, round->mutable_participants());
  round->set_digest(options.digest);
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_IMPL_H_
