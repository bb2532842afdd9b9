// Objects between ranks: mailboxes, and rounds that carry values.
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

template <typename M>
absl::Status CallWithPayload(const std::shared_ptr<GroupSession>& session, const M& method,
                             typename M::Request& request, typename M::Response* response,
                             const CallSpec& spec, absl::string_view object) {
  return CallWithValue(
      *session, method, request, response, spec,
      [&] { return PackPayload(session, object, spec.deadline, request.mutable_payload()); },
      [&] { return request.payload().has_blob(); });
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
  const int64_t generation = session_->position().generation;
  if (!session_->send_fifo().Await(key, spec.deadline)) return NotSent(*session_, spec);
  v1::SendRequest request;
  v1::SendResponse response;
  absl::Status status = CallWithValue(
      *session_, method::kSend, request, &response, spec,
      [&] {
        request = MakeSend(key, generation);
        return PackPayload(session_, object, spec.deadline, request.mutable_payload());
      },
      [&] { return request.payload().has_blob(); });
  session_->send_fifo().End(key);
  return status;
}

void ProcessGroupImpl::SendAsync(absl::string_view object, int dst, absl::string_view tag,
                                 std::function<void(absl::Status)> done) {
  if (absl::Status valid = CheckDestination(dst); !valid.ok()) {
    session_->connection()->timers().Post([done = std::move(done), valid] { done(valid); });
    return;
  }
  const CallSpec spec = Spec(SendText(dst, tag));
  const SendFifoKey key(dst, tag);
  auto end = [session = session_, key, done = std::move(done)](const absl::Status& status) {
    // In this order, so that the callbacks run in the order of the calls.
    done(status);
    session->send_fifo().End(key);
  };
  auto call = std::make_shared<AsyncValueCall<decltype(method::kSend)>>(
      session_, method::kSend, MakeSend(key, session_->position().generation), spec, object,
      [end](const absl::Status& status, v1::SendResponse&) { end(status); });
  session_->send_fifo().Take(key, [session = session_, spec, call, end] {
    if (Clock::Steady().Now() < spec.deadline) {
      call->Start();
    } else {
      // Not in this call, because thousands of sends in a row may be too late.
      session->connection()->timers().Post([session, spec, end] { end(NotSent(*session, spec)); });
    }
  });
}

absl::StatusOr<ReceivedObject> ProcessGroupImpl::ReceiveFrom(std::optional<int> src,
                                                             absl::string_view tag,
                                                             absl::Duration timeout) {
  const CallSpec spec = Spec(ReceiveText(src, tag), timeout);
  v1::ReceiveRequest request = MakeReceive(src, tag);
  v1::ReceiveResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kReceive, request, &response, spec));
  const int64_t generation = request.scope().generation();
  COHORT_RETURN_IF_ERROR(ReadReceive(response, *session_, generation, spec.what));
  COHORT_ASSIGN_OR_RETURN(std::string bytes, UnpackPayload(session_, *response.mutable_payload(),
                                                           spec.deadline + kDeadlineMargin));
  session_->AddReceipt(generation, response.receipt());
  return ReceivedObject{std::move(bytes), response.source(), response.sequence()};
}

absl::StatusOr<std::string> ProcessGroupImpl::Receive(int src, absl::string_view tag,
                                                      absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(CheckPeer(src, "source"));
  COHORT_ASSIGN_OR_RETURN(ReceivedObject object, ReceiveFrom(src, tag, timeout));
  return std::move(object.bytes);
}

absl::StatusOr<ReceivedObject> ProcessGroupImpl::ReceiveAny(absl::string_view tag,
                                                            absl::Duration timeout) {
  return ReceiveFrom(std::nullopt, tag, timeout);
}

void ProcessGroupImpl::ReceiveAsync(std::optional<int> src, absl::string_view tag,
                                    absl::Duration timeout,
                                    std::function<void(absl::StatusOr<ReceivedObject>)> done) {
  if (src.has_value()) {
    if (absl::Status valid = CheckPeer(*src, "source"); !valid.ok()) {
      session_->connection()->timers().Post([done = std::move(done), valid] { done(valid); });
      return;
    }
  }
  const CallSpec spec = Spec(ReceiveText(src, tag), timeout);
  v1::ReceiveRequest request = MakeReceive(src, tag);
  const int64_t generation = session_->position().generation;
  request.mutable_scope()->set_generation(generation);
  session_->CallAsync(
      method::kReceive, std::move(request), spec,
      [session = session_, spec, generation, done = std::move(done)](
          absl::Status status, v1::ReceiveResponse& response) {
        if (status.ok()) status = ReadReceive(response, *session, generation, spec.what);
        if (!status.ok()) {
          done(status);
          return;
        }
        UnpackPayloadAsync(
            session, *response.mutable_payload(), spec.deadline + kDeadlineMargin,
            [session, generation, done, source = response.source(), sequence = response.sequence(),
             receipt = response.receipt()](absl::StatusOr<std::string> bytes) {
              if (!bytes.ok()) {
                done(bytes.status());
                return;
              }
              session->AddReceipt(generation, receipt);
              done(ReceivedObject{*std::move(bytes), source, sequence});
            });
      });
}

absl::StatusOr<std::string> ProcessGroupImpl::Broadcast(absl::string_view object, int root,
                                                        const RoundOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckPeer(root, "root"));
  const bool is_root = root == rank();
  std::string value;
  const auto attempt = [&](const RoundPlan& plan, RoundReport* end) {
    v1::BroadcastRequest request;
    FillRound(plan, options, request.mutable_round());
    request.set_root(root);
    v1::BroadcastResponse response;
    const absl::Status called =
        is_root
            ? CallWithPayload(session_, method::kBroadcast, request, &response, plan.spec, object)
            : session_->Call(method::kBroadcast, request, &response, plan.spec);
    COHORT_RETURN_IF_ERROR(EndRound(*session_, called, response.result(), plan, end));
    if (is_root) {
      value = std::string(object);
      return absl::OkStatus();
    }
    COHORT_ASSIGN_OR_RETURN(value, UnpackPayload(session_, *response.mutable_payload(),
                                                 plan.spec.deadline + kDeadlineMargin));
    // The root received no object, so it must not acknowledge for the ranks that did.
    session_->AddReceipt(plan.ticket.generation, response.result().receipt());
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(RunRound("broadcast", options, options_.timeout, nullptr, attempt));
  return value;
}

absl::StatusOr<ObjectList> ProcessGroupImpl::AllGather(absl::string_view object,
                                                       const RoundOptions& options) {
  ObjectList values;
  const auto attempt = [&](const RoundPlan& plan, RoundReport* end) {
    v1::AllGatherRequest request;
    FillRound(plan, options, request.mutable_round());
    v1::AllGatherResponse response;
    const absl::Status called =
        CallWithPayload(session_, method::kAllGather, request, &response, plan.spec, object);
    COHORT_RETURN_IF_ERROR(EndRound(*session_, called, response.result(), plan, end));
    COHORT_ASSIGN_OR_RETURN(values, UnpackValues(session_, *response.mutable_values(),
                                                 plan.spec.deadline + kDeadlineMargin));
    session_->AddReceipt(plan.ticket.generation, response.result().receipt());
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(RunRound("all_gather", options, options_.timeout, nullptr, attempt));
  return values;
}

void ProcessGroupImpl::AllGatherAsync(absl::string_view object, const RoundOptions& options,
                                      std::function<void(absl::StatusOr<ObjectList>)> done) {
  RoundPlan plan = Plan("all_gather", options, options_.timeout);
  plan.spec.on_waiting = nullptr;
  v1::AllGatherRequest request;
  FillRound(plan, options, request.mutable_round());
  auto on_answer = [session = session_, plan, done](const absl::Status& called,
                                                    v1::AllGatherResponse& response) {
    RoundReport report;
    const absl::Status status = EndRound(*session, called, response.result(), plan, &report);
    if (!status.ok()) {
      done(status);
      return;
    }
    UnpackValuesAsync(session, *response.mutable_values(), plan.spec.deadline + kDeadlineMargin,
                      [session, done, generation = plan.ticket.generation,
                       receipt = response.result().receipt()](absl::StatusOr<ObjectList> values) {
                        if (values.ok()) session->AddReceipt(generation, receipt);
                        done(std::move(values));
                      });
  };
  std::make_shared<AsyncValueCall<decltype(method::kAllGather)>>(
      session_, method::kAllGather, std::move(request), plan.spec, object, std::move(on_answer))
      ->Start();
}

absl::StatusOr<ObjectList> ProcessGroupImpl::Gather(absl::string_view object, int root,
                                                    const RoundOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckPeer(root, "root"));
  ObjectList values;
  const auto attempt = [&](const RoundPlan& plan, RoundReport* end) {
    v1::GatherRequest request;
    FillRound(plan, options, request.mutable_round());
    request.set_root(root);
    v1::GatherResponse response;
    const absl::Status called =
        CallWithPayload(session_, method::kGather, request, &response, plan.spec, object);
    COHORT_RETURN_IF_ERROR(EndRound(*session_, called, response.result(), plan, end));
    if (root != rank()) return absl::OkStatus();
    COHORT_ASSIGN_OR_RETURN(values, UnpackValues(session_, *response.mutable_values(),
                                                 plan.spec.deadline + kDeadlineMargin));
    session_->AddReceipt(plan.ticket.generation, response.result().receipt());
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(RunRound("gather", options, options_.timeout, nullptr, attempt));
  return values;
}

absl::StatusOr<std::string> ProcessGroupImpl::Scatter(const std::vector<std::string>& objects,
                                                      int root, const RoundOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckPeer(root, "root"));
  const bool is_root = root == rank();
  const RankSet participants = options.participants.empty()
                                   ? RankSet::All(world_size())
                                   : RankSet::FromRanges(options.participants);
  if (is_root && static_cast<int>(objects.size()) != participants.count()) {
    return absl::InvalidArgumentError(absl::StrCat("scatter: ", objects.size(), " objects for ",
                                                   participants.count(), " participants"));
  }
  std::string value;
  const auto attempt = [&](const RoundPlan& plan, RoundReport* end) {
    v1::ScatterRequest request;
    FillRound(plan, options, request.mutable_round());
    request.set_root(root);
    v1::ScatterResponse response;
    const absl::Status called = CallWithValue(
        *session_, method::kScatter, request, &response, plan.spec,
        [&] {
          request.clear_values();
          if (!is_root) return absl::OkStatus();
          return PackValues(session_, objects, plan.spec.deadline, request.mutable_values());
        },
        [&] { return request.values().has_blob(); });
    COHORT_RETURN_IF_ERROR(EndRound(*session_, called, response.result(), plan, end));
    if (is_root) {
      value = objects[participants.CountBelow(root)];
      return absl::OkStatus();
    }
    COHORT_ASSIGN_OR_RETURN(value, UnpackPayload(session_, *response.mutable_payload(),
                                                 plan.spec.deadline + kDeadlineMargin));
    session_->AddReceipt(plan.ticket.generation, response.result().receipt());
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(RunRound("scatter", options, options_.timeout, nullptr, attempt));
  return value;
}

absl::StatusOr<int64_t> ProcessGroupImpl::ExpireData(std::optional<absl::Duration> older_than) {
  v1::ExpireRequest request;
  if (older_than.has_value()) ToProto(*older_than, request.mutable_older_than());
  v1::ExpireResponse response;
  COHORT_RETURN_IF_ERROR(session_->Call(method::kExpire, request, &response, Spec("expire")));
  return response.object_count();
}

}  // namespace cohort::client
