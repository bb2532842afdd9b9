// Objects between ranks: mailboxes, and rounds that carry values.
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rendezvous/process_group/payload_transfer.h"
#include "client/rendezvous/process_group/process_group_impl.h"

namespace cohort::client {
namespace {

absl::Status ReadReceive(const v1::ReceiveResponse& response, const GroupSession& session,
                         int64_t generation, const std::string& what) {
  if (response.outcome() == v1::RECEIVE_OUTCOME_RECEIVED) return absl::OkStatus();
  return TimedOut(session.group(), generation, what, response.missing());
}

std::string ReceiveText(std::optional<int> src, absl::string_view tag) {
  return absl::StrCat("receive \"", tag, "\" from ",
                      src.has_value() ? absl::StrCat(*src) : std::string("any"));
}

v1::ReceiveRequest MakeReceive(std::optional<int> src, absl::string_view tag) {
  v1::ReceiveRequest request;
  if (src.has_value()) request.set_source(*src);
  request.set_tag(std::string(tag));
  return request;
}

std::string SendText(int dst, absl::string_view tag) {
  return absl::StrCat("send \"", tag, "\" to ", dst);
}

// `generation` is the one of the call. An object that waited must not get into another one.
v1::SendRequest MakeSend(const SendFifoKey& key, int64_t generation) {
  v1::SendRequest request;
  request.mutable_scope()->set_generation(generation);
  request.set_destination(key.first);
  request.set_tag(key.second);
  return request;
}

// The error of a send whose timeout passed while the sends before it had no answer.
absl::Status NotSent(const GroupSession& session, const CallSpec& spec) {
  return absl::DeadlineExceededError(
      absl::StrCat(spec.what, " of group ", session.group(),
                   ": not sent; the sends before it had no answer in its time"));
}

// A send that waits for its turn: one thread starts it or gives it up.
struct WaitingSend {
  bool Decide() { return !decided.exchange(true); }

  std::atomic<bool> decided{false};
  std::optional<Cancellation::Listener> on_cancel;
};

// Reads the value of a round that has ended, if it has one for this rank, and acknowledges it.
// `payload` is a Payload or Values.
template <typename Wire, typename End>
void ReadValue(CallMode mode, const std::shared_ptr<GroupSession>& session, const RoundPlan& plan,
               int64_t receipt, Wire& payload, RoundReport report, End end) {
  Unpack(mode, session, payload, plan.spec.deadline + kDeadlineMargin,
         [session, generation = plan.ticket.generation, receipt, report = std::move(report),
          end = std::move(end)](auto value) mutable {
           if (value.ok()) session->AddReceipt(generation, receipt);
           end(std::move(value), std::move(report));
         });
}

// Runs a round in which the root has the objects and each other rank receives one. `own`: the
// root's own object; absent on the other ranks.
template <typename Method, typename Value, typename End>
void RunFromRoot(CallMode mode, const std::shared_ptr<GroupSession>& session, const Method& method,
                 typename Method::Request request, const RoundPlan& plan, const Value& value,
                 std::optional<std::string> own, End end) {
  const bool is_root = own.has_value();
  auto then = [mode, session, plan, end = std::move(end), own = std::move(own)](absl::Status called,
                                                                                auto& response) {
    RoundReport report;
    called = EndRound(*session, called, response.result(), plan, &report);
    if (!called.ok()) {
      end(std::move(called), std::move(report));
    } else if (own.has_value()) {
      // The root received no object, so it must not acknowledge for the ranks that did.
      end(*own, std::move(report));
    } else {
      ReadValue(mode, session, plan, response.result().receipt(), *response.mutable_payload(),
                std::move(report), end);
    }
  };
  if (is_root) {
    RunWithValue(mode, session, method, std::move(request), plan.spec, value, std::move(then));
  } else {
    session->Run(mode, method, std::move(request), plan.spec, std::move(then));
  }
}

// The attempts of each kind of round. They borrow their arguments for the call of the attempt.

auto BroadcastAttempt(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                      int root, const RoundOptions& options) {
  return [&session, object, root, &options](CallMode mode, const RoundPlan& plan, auto end) {
    v1::BroadcastRequest request;
    FillRound(plan, options, request.mutable_round());
    request.set_root(root);
    std::optional<std::string> own;
    if (root == session->position().rank) own.emplace(object);
    RunFromRoot(mode, session, method::kBroadcast, std::move(request), plan, ObjectValue{object},
                std::move(own), std::move(end));
  };
}

auto AllGatherAttempt(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                      const RoundOptions& options) {
  return [&session, object, &options](CallMode mode, const RoundPlan& plan, auto end) {
    v1::AllGatherRequest request;
    FillRound(plan, options, request.mutable_round());
    RunWithValue(mode, session, method::kAllGather, std::move(request), plan.spec,
                 ObjectValue{object},
                 [mode, session, plan, end = std::move(end)](absl::Status called,
                                                             v1::AllGatherResponse& response) {
                   RoundReport report;
                   called = EndRound(*session, called, response.result(), plan, &report);
                   if (!called.ok()) return end(std::move(called), std::move(report));
                   ReadValue(mode, session, plan, response.result().receipt(),
                             *response.mutable_values(), std::move(report), end);
                 });
  };
}

auto GatherAttempt(const std::shared_ptr<GroupSession>& session, absl::string_view object, int root,
                   const RoundOptions& options) {
  return [&session, object, root, &options](CallMode mode, const RoundPlan& plan, auto end) {
    const bool is_root = root == session->position().rank;
    v1::GatherRequest request;
    FillRound(plan, options, request.mutable_round());
    request.set_root(root);
    RunWithValue(mode, session, method::kGather, std::move(request), plan.spec, ObjectValue{object},
                 [mode, session, plan, end = std::move(end), is_root](
                     absl::Status called, v1::GatherResponse& response) {
                   RoundReport report;
                   called = EndRound(*session, called, response.result(), plan, &report);
                   if (!called.ok()) return end(std::move(called), std::move(report));
                   if (!is_root) return end(ObjectList(), std::move(report));
                   ReadValue(mode, session, plan, response.result().receipt(),
                             *response.mutable_values(), std::move(report), end);
                 });
  };
}

// `own`: at the root, its own object; else null.
auto ScatterAttempt(const std::shared_ptr<GroupSession>& session,
                    const std::vector<std::string>& objects, int root, const std::string* own,
                    const RoundOptions& options) {
  return [&session, &objects, root, own, &options](CallMode mode, const RoundPlan& plan, auto end) {
    v1::ScatterRequest request;
    FillRound(plan, options, request.mutable_round());
    request.set_root(root);
    RunFromRoot(mode, session, method::kScatter, std::move(request), plan, ListValue{objects},
                own != nullptr ? std::make_optional(*own) : std::nullopt, std::move(end));
  };
}

// The result of a round. A member with a wrong argument takes part in it, so that its numbers stay
// those of the others, which wait: it gets its own error for the mismatch that they get.
template <typename T>
absl::StatusOr<T> OwnOr(const absl::Status& own, absl::StatusOr<T> value) {
  return !own.ok() && (value.ok() || absl::IsFailedPrecondition(value.status())) ? own
                                                                                 : std::move(value);
}

// Drops the report of a round.
template <typename T>
auto WithoutReport(Done<T> done, absl::Status own = absl::OkStatus()) {
  return
      [done = std::move(done), own = std::move(own)](
          absl::StatusOr<T> value, RoundReport /*report*/) { done(OwnOr(own, std::move(value))); };
}

}  // namespace

absl::Status ProcessGroupImpl::CheckDestination(int dst) const {
  COHORT_RETURN_IF_ERROR(CheckPeer(dst, "destination"));
  if (dst != rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", dst, " sends to itself"));
}

absl::Status ProcessGroupImpl::Send(absl::string_view object, int dst, absl::string_view tag,
                                    absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(CheckDestination(dst));
  const CallSpec spec = Spec(SendText(dst, tag), timeout);
  const SendFifoKey key(dst, tag);
  v1::SendRequest request = MakeSend(key, session_->position().generation);
  const CallCancellations cancellations(nullptr);
  if (!session_->send_fifo().Await(key, spec.deadline, cancellations)) {
    COHORT_RETURN_IF_ERROR(cancellations.reason());
    return NotSent(*session_, spec);
  }
  v1::SendResponse response;
  absl::Status status =
      CallWithValue(session_, method::kSend, request, &response, spec, ObjectValue{object});
  session_->send_fifo().End(key);
  return status;
}

void ProcessGroupImpl::Send(absl::string_view object, int dst, absl::string_view tag,
                            const AsyncOptions& options, StatusDone done) {
  if (absl::Status valid = CheckDestination(dst); !valid.ok()) return Refuse(valid, done);
  const CallSpec spec = Spec(SendText(dst, tag), options);
  const SendFifoKey key(dst, tag);
  auto end = [session = session_, key, done](const absl::Status& status) {
    // In this order, so that the callbacks run in the order of the calls.
    done(status);
    session->send_fifo().End(key);
  };
  auto call = std::make_shared<AsyncValueCall<ObjectValue, decltype(method::kSend)>>(
      session_, method::kSend, MakeSend(key, session_->position().generation), spec,
      ObjectValue{object}, [end](const absl::Status& status, v1::SendResponse&) { end(status); });
  auto waiting = std::make_shared<WaitingSend>();
  if (spec.cancellation != nullptr) {
    waiting->on_cancel.emplace(
        *spec.cancellation, [session = session_, waiting, done](const absl::Status& reason) {
          if (!waiting->Decide()) return;
          session->connection()->timers().Post([done, reason] { done(reason); });
        });
  }
  session_->send_fifo().Take(key, [session = session_, key, spec, call, end, waiting] {
    waiting->on_cancel.reset();
    // Not in this call, because thousands of sends in a row may be cancelled or too late.
    if (!waiting->Decide()) {
      session->connection()->timers().Post([session, key] { session->send_fifo().End(key); });
      return;
    }
    if (Clock::Steady().Now() < spec.deadline) {
      call->Start();
    } else {
      session->connection()->timers().Post([session, spec, end] { end(NotSent(*session, spec)); });
    }
  });
}

template <typename Then>
void ProcessGroupImpl::RunReceive(CallMode mode, std::optional<int> src, absl::string_view tag,
                                  const AsyncOptions& options, Then done) {
  const CallSpec spec = Spec(ReceiveText(src, tag), options);
  v1::ReceiveRequest request = MakeReceive(src, tag);
  const int64_t generation = session_->position().generation;
  request.mutable_scope()->set_generation(generation);
  const std::string operation = session_->connection()->NewOperationId();
  request.mutable_scope()->set_operation_id(operation);
  session_->Run(mode, method::kReceive, std::move(request), spec,
                [mode, session = session_, spec, generation, operation, done = std::move(done)](
                    absl::Status status, v1::ReceiveResponse& response) {
                  if (status.ok()) status = ReadReceive(response, *session, generation, spec.what);
                  if (!status.ok()) return done(std::move(status));
                  Unpack(mode, session, *response.mutable_payload(),
                         spec.deadline + kDeadlineMargin,
                         [session, generation, operation, done, source = response.source(),
                          sequence = response.sequence(),
                          receipt = response.receipt()](absl::StatusOr<std::string> bytes) {
                           if (!bytes.ok()) {
                             session->Abandon(generation, operation);
                             return done(bytes.status());
                           }
                           session->AddReceipt(generation, receipt);
                           done(ReceivedObject{*std::move(bytes), source, sequence});
                         });
                });
}

absl::StatusOr<std::string> ProcessGroupImpl::Receive(int src, absl::string_view tag,
                                                      absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(CheckPeer(src, "source"));
  using Result = absl::StatusOr<ReceivedObject>;
  Result result = ResultOf<Result>([&](auto done) {
    RunReceive(CallMode::kBlocking, src, tag, {timeout, nullptr}, done);
  });
  if (!result.ok()) return result.status();
  return std::move(result->bytes);
}

absl::StatusOr<ReceivedObject> ProcessGroupImpl::ReceiveAny(absl::string_view tag,
                                                            absl::Duration timeout) {
  return ResultOf<absl::StatusOr<ReceivedObject>>([&](auto done) {
    RunReceive(CallMode::kBlocking, std::nullopt, tag, {timeout, nullptr}, done);
  });
}

void ProcessGroupImpl::Receive(std::optional<int> src, absl::string_view tag,
                               const AsyncOptions& options, Done<ReceivedObject> done) {
  if (src.has_value()) {
    if (absl::Status valid = CheckPeer(*src, "source"); !valid.ok()) return Refuse(valid, done);
  }
  RunReceive(
      CallMode::kAsync, src, tag, options,
      [done = std::move(done)](absl::StatusOr<ReceivedObject> object) { done(std::move(object)); });
}

absl::StatusOr<std::string> ProcessGroupImpl::Broadcast(absl::string_view object, int root,
                                                        const RoundOptions& options) {
  return OwnOr(CheckPeer(root, "root"), RunRound<absl::StatusOr<std::string>>(
                                            "broadcast", options, options_->timeout, nullptr,
                                            BroadcastAttempt(session_, object, root, options)));
}

void ProcessGroupImpl::Broadcast(absl::string_view object, int root, const RoundOptions& options,
                                 Done<std::string> done) {
  StartRound("broadcast", options, options_->timeout,
             BroadcastAttempt(session_, object, root, options),
             WithoutReport(std::move(done), CheckPeer(root, "root")));
}

absl::StatusOr<ObjectList> ProcessGroupImpl::AllGather(absl::string_view object,
                                                       const RoundOptions& options) {
  return RunRound<absl::StatusOr<ObjectList>>("all_gather", options, options_->timeout, nullptr,
                                              AllGatherAttempt(session_, object, options));
}

void ProcessGroupImpl::AllGather(absl::string_view object, const RoundOptions& options,
                                 Done<ObjectList> done) {
  StartRound("all_gather", options, options_->timeout, AllGatherAttempt(session_, object, options),
             WithoutReport(std::move(done)));
}

absl::StatusOr<ObjectList> ProcessGroupImpl::Gather(absl::string_view object, int root,
                                                    const RoundOptions& options) {
  return OwnOr(CheckPeer(root, "root"), RunRound<absl::StatusOr<ObjectList>>(
                                            "gather", options, options_->timeout, nullptr,
                                            GatherAttempt(session_, object, root, options)));
}

void ProcessGroupImpl::Gather(absl::string_view object, int root, const RoundOptions& options,
                              Done<ObjectList> done) {
  StartRound("gather", options, options_->timeout, GatherAttempt(session_, object, root, options),
             WithoutReport(std::move(done), CheckPeer(root, "root")));
}

absl::StatusOr<const std::string*> ProcessGroupImpl::CheckScatter(
    const std::vector<std::string>& objects, int root, const RoundOptions& options) const {
  COHORT_RETURN_IF_ERROR(CheckPeer(root, "root"));
  if (root != rank()) return nullptr;
  const RankSet participants = options.participants.empty()
                                   ? RankSet::All(world_size())
                                   : RankSet::FromRanges(options.participants);
  if (static_cast<int>(objects.size()) != participants.count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", session_->group(), ": rank ", rank(), ": scatter: ", objects.size(),
                     " objects for ", participants.count(), " participants"));
  }
  return &objects[participants.CountBelow(root)];
}

absl::StatusOr<std::string> ProcessGroupImpl::Scatter(const std::vector<std::string>& objects,
                                                      int root, const RoundOptions& options) {
  const absl::StatusOr<const std::string*> own = CheckScatter(objects, root, options);
  return OwnOr(own.status(),
               RunRound<absl::StatusOr<std::string>>(
                   "scatter", options, options_->timeout, nullptr,
                   ScatterAttempt(session_, objects, root, own.value_or(nullptr), options)));
}

void ProcessGroupImpl::Scatter(const std::vector<std::string>& objects, int root,
                               const RoundOptions& options, Done<std::string> done) {
  const absl::StatusOr<const std::string*> own = CheckScatter(objects, root, options);
  StartRound("scatter", options, options_->timeout,
             ScatterAttempt(session_, objects, root, own.value_or(nullptr), options),
             WithoutReport(std::move(done), own.status()));
}

void ProcessGroupImpl::RunExpireData(CallMode mode, std::optional<absl::Duration> older_than,
                                     const AsyncOptions& options, Done<int64_t> done) {
  v1::ExpireRequest request;
  if (older_than.has_value()) ToProto(*older_than, request.mutable_older_than());
  session_->Run(mode, method::kExpire, std::move(request), Spec("expire", options),
                [done = std::move(done)](absl::Status status, v1::ExpireResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  done(response.object_count());
                });
}

absl::StatusOr<int64_t> ProcessGroupImpl::ExpireData(std::optional<absl::Duration> older_than) {
  return ResultOf<absl::StatusOr<int64_t>>(
      [&](auto done) { RunExpireData(CallMode::kBlocking, older_than, {}, done); });
}

void ProcessGroupImpl::ExpireData(std::optional<absl::Duration> older_than,
                                  const AsyncOptions& options, Done<int64_t> done) {
  RunExpireData(CallMode::kAsync, older_than, options, std::move(done));
}

}  // namespace cohort::client
