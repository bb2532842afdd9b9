#include "coordinator/service/torchft/lighthouse.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/text/printable.h"
#include "coordinator/service/engine/discard_reply.h"
#include "google/protobuf/util/time_util.h"
#include "grpcpp/support/slice.h"

namespace cohort::coordinator::torchft {
namespace {

// A decision looks at all replicas. One that takes longer than this leaves the threads to others
// for so many times as long: the calls that come meanwhile are decided together.
constexpr absl::Duration kShortDecision = absl::Microseconds(200);
constexpr int kDecisionShare = 10;
// A replica that was silent for longer is forgotten when another one comes.
constexpr absl::Duration kForgetAfter = absl::Minutes(10);
// Each looks at all replicas.
constexpr absl::Duration kBetweenForgetting = absl::Seconds(1);
constexpr absl::Duration kBeforeTelling = absl::Seconds(1);
constexpr absl::Duration kBetweenTellings = absl::Seconds(5);
// The fields of an answer around its members.
constexpr int64_t kAnswerBytes = 64;
// The tag and the length of a member.
constexpr int64_t kMemberHeadBytes = 8;

int64_t CostOfReplica(const std::string& replica) {
  return NodeCost<std::pair<const std::string, Instant>>() +
         NodeCost<std::pair<const std::string, Lighthouse::Owner>>() + 2 * CostOf(replica);
}

bool HasMissingKeys(const Reply& reply) {
  const auto* get = std::get_if<GetReply>(&reply.body);
  return get != nullptr && !get->missing_keys.empty();
}

}  // namespace

std::string TenantOfPort(int port) { return absl::StrCat("torchft-", port); }

absl::Status StatusOfWait(const Reply& reply) {
  if (!reply.status.ok()) return reply.status;
  if (HasMissingKeys(reply)) return absl::DeadlineExceededError("");
  return absl::AbortedError(
      absl::StrCat("another client has put the key \"", kWaitKey, "\", which must not exist"));
}

Lighthouse::Lighthouse(int port, const QuorumOptions& options, Dispatcher& dispatcher,
                       std::function<void(Instant)> move_alarm)
    : port_(port),
      options_(options),
      dispatcher_(dispatcher),
      engine_(dispatcher.engine()),
      move_alarm_(std::move(move_alarm)),
      first_id_(absl::ToUnixMillis(absl::Now())),
      replicas_charge_(engine_.account(), MemoryKind::kMembers) {
  MutexLock lock(&mutex_);
  if (engine_.boot() > 1) {
    state_.not_before = engine_.clock().Now() + options_.heartbeat_timeout;
  }
}

absl::StatusOr<Lighthouse::Owner> Lighthouse::Admit(Method method, PeerAccess* access) {
  Caller caller;
  caller.key.tenant = TenantOfPort(port_);
  COHORT_RETURN_IF_ERROR(dispatcher_.Admit(method, access, &caller));
  return caller.identity;
}

absl::Status Lighthouse::Heartbeat(const std::string& replica, const Owner& owner) {
  Work work;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    const Instant now = engine_.clock().Now();
    const auto before = state_.heartbeats.find(replica);
    const bool was_alive =
        before != state_.heartbeats.end() && now - before->second < options_.heartbeat_timeout;
    status = Heard(replica, owner, now);
    // One more that is alive may complete a quorum only if it asked and was thought to be dead.
    if (status.ok() && !was_alive && parked_.count(replica) > 0) Decide(now, &work);
  }
  Do(std::move(work));
  return status;
}

absl::Status Lighthouse::Enter(QuorumCall* call, wire::QuorumMember member, const Owner& owner,
                               absl::Duration wait) {
  const std::string replica = member.replica_id();
  const int64_t bytes = static_cast<int64_t>(member.ByteSizeLong()) + kMemberHeadBytes;
  call->replica_ = replica;
  {
    MutexLock lock(&mutex_);
    absl::Status status = Heard(replica, owner, engine_.clock().Now());
    if (!status.ok()) return status;
    const auto earlier = parked_.find(replica);
    const int64_t replaced = earlier == parked_.end() ? 0 : earlier->second.bytes;
    const int64_t sum = parked_bytes_ - replaced + bytes + kAnswerBytes;
    if (sum > dispatcher_.max_message_bytes()) {
      return absl::ResourceExhaustedError(absl::StrCat("torchft quorum at port ", port_,
                                                       ": with replica ", Printable(replica),
                                                       ", the members that ask would take ", sum,
                                                       " bytes of an answer, over "
                                                       "--max-message-bytes (",
                                                       dispatcher_.max_message_bytes(), ")"));
    }
  }
  GetCall get;
  get.keys = {kWaitKey};
  get.keys_only = true;
  get.wait = true;
  get.client = absl::StrCat("torchft replica ", Printable(replica));
  Call parked = NewCall(std::move(get));
  parked.wait = wait;
  // Without the lock: the engine may reply in here, and then the call leaves.
  engine_.Submit(std::move(parked), call, &call->handle_);

  Work work;
  {
    MutexLock lock(&mutex_);
    if (call->over_) return absl::OkStatus();
    const Instant now = engine_.clock().Now();
    const auto earlier = parked_.find(replica);
    if (earlier != parked_.end()) {
      work.endings.push_back(
          Ending{earlier->second.call, earlier->second.handle,
                 absl::AbortedError(absl::StrCat("torchft quorum at port ", port_, ": replica ",
                                                 Printable(replica), " has called again"))});
      Remove(replica);
    }
    state_.candidates[replica] = Candidate{now, member.shrink_only(), member.commit_failures()};
    parked_[replica] = Parked{call, call->handle_, std::move(member), bytes};
    parked_bytes_ += bytes;
    if (next_telling_ == absl::InfiniteFuture()) next_telling_ = now + kBeforeTelling;
    Decide(now, &work);
  }
  Do(std::move(work));
  return absl::OkStatus();
}

absl::Status Lighthouse::Leave(QuorumCall* call, const absl::Status& reply) {
  Work work;
  absl::Status status = reply;
  {
    MutexLock lock(&mutex_);
    call->over_ = true;
    const Instant now = engine_.clock().Now();
    const std::string replica = call->replica_;
    const auto parked = parked_.find(replica);
    const bool is_parked = parked != parked_.end() && parked->second.call == call;
    if (absl::IsDeadlineExceeded(reply)) {
      std::string why = "called with a deadline that has passed";
      if (!chosen_.empty()) {
        why = "waited for the journal, which writes the id of a quorum";
      } else if (is_parked) {
        const absl::Duration waited = now - state_.candidates[replica].since;
        why = absl::StrFormat(
            "waited %.1fs; %s", absl::ToDoubleSeconds(waited),
            now < next_decision_ ? reason_ : DecideQuorum(now, state_, options_).reason);
      }
      status = absl::DeadlineExceededError(absl::StrCat(
          "torchft quorum at port ", port_, ": replica ", Printable(replica), " ", why));
    }
    if (is_parked) {
      Remove(replica);
      Decide(now, &work);
    }
  }
  Do(std::move(work));
  return status;
}

Instant Lighthouse::Tick() {
  Work work;
  Instant next;
  {
    MutexLock lock(&mutex_);
    const Instant now = engine_.clock().Now();
    if (now >= next_tick_) Decide(now, &work);
    next = next_tick_;
  }
  Do(std::move(work));
  return next;
}

absl::Status Lighthouse::Heard(const std::string& replica, const Owner& owner, Instant now) {
  const auto known = state_.heartbeats.find(replica);
  if (known != state_.heartbeats.end()) {
    Owner& before = owners_[replica];
    const bool alive =
        now - known->second < options_.heartbeat_timeout || parked_.count(replica) > 0;
    if (alive && before != nullptr && owner != nullptr && *before != *owner) {
      return absl::PermissionDeniedError(
          absl::StrCat("torchft at port ", port_, ": replica ", Printable(replica), " belongs to ",
                       Printable(*before), ", not to ", Printable(*owner)));
    }
    before = owner;
    known->second = now;
    return absl::OkStatus();
  }
  const int64_t most = engine_.limits().max_members;
  const auto is_full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int64_t>(state_.heartbeats.size()) >= most;
  };
  if (now >= next_forgetting_) {
    next_forgetting_ = now + kBetweenForgetting;
    ForgetSilent(now - (is_full() ? options_.heartbeat_timeout : kForgetAfter));
  }
  if (is_full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("torchft at port ", port_, ": replica ", Printable(replica),
                     " is one more than the limit max_members (", most, ")"));
  }
  const int64_t cost = CostOfReplica(replica);
  absl::Status status = engine_.CheckRoom(MemoryKind::kMembers, cost, Share::kNew);
  if (!status.ok()) return status;
  replicas_charge_.Set(replicas_charge_.bytes() + cost);
  state_.heartbeats[replica] = now;
  owners_[replica] = owner;
  return absl::OkStatus();
}

void Lighthouse::ForgetSilent(Instant silent_since) {
  for (auto it = state_.heartbeats.begin(); it != state_.heartbeats.end();) {
    const auto& [replica, heard] = *it;
    const bool keep = heard > silent_since || parked_.count(replica) > 0;
    if (!keep) {
      replicas_charge_.Set(replicas_charge_.bytes() - CostOfReplica(replica));
      owners_.erase(replica);
    }
    it = keep ? std::next(it) : state_.heartbeats.erase(it);
  }
}

void Lighthouse::Remove(const std::string& replica) {
  const auto parked = parked_.find(replica);
  parked_bytes_ -= parked->second.bytes;
  parked_.erase(parked);
  state_.candidates.erase(replica);
}

void Lighthouse::Decide(Instant now, Work* work) {
  if (now < next_decision_) {
    next_tick_ = std::min(next_tick_, next_decision_);
    move_alarm_(next_tick_);
    return;
  }
  const Instant begin = Clock::Steady().Now();
  DecideNow(now, work);
  const absl::Duration took = Clock::Steady().Now() - begin;
  if (took > kShortDecision) next_decision_ = now + took * kDecisionShare;
}

void Lighthouse::DecideNow(Instant now, Work* work) {
  next_tick_ = absl::InfiniteFuture();
  if (!chosen_.empty()) return;
  if (parked_.empty()) {
    next_telling_ = absl::InfiniteFuture();
    TellWhoIsMissing(now, "");
    return;
  }
  QuorumDecision decision = DecideQuorum(now, state_, options_);
  if (!decision.members.empty()) return Choose(std::move(decision), now, work);
  reason_ = decision.reason;
  if (now >= next_telling_) TellWhoIsMissing(now, decision.reason);
  next_tick_ = std::min(decision.valid_until, next_telling_);
  move_alarm_(next_tick_);
}

void Lighthouse::Choose(QuorumDecision decision, Instant now, Work* work) {
  for (const std::string& replica : decision.members) {
    chosen_[replica] = std::move(parked_.at(replica));
    parked_bytes_ -= chosen_[replica].bytes;
    parked_.erase(replica);
    state_.candidates.erase(replica);
  }
  // The others wait for the next quorum, whose wait for late replicas begins now.
  for (auto& [replica, candidate] : state_.candidates) candidate.since = now;
  TellWhoIsMissing(now, "");
  next_telling_ = parked_.empty() ? absl::InfiniteFuture() : now + kBeforeTelling;
  if (!decision.needs_new_id) return AnswerChosen(absl::OkStatus(), work);
  id_asked_ = now;
  work->add_to_id = 1;
}

void Lighthouse::AnswerChosen(const absl::Status& status, Work* work) {
  absl::StatusOr<grpc::ByteBuffer> answer = absl::InternalError("no answer");
  if (!status.ok()) {
    answer = status;
  } else {
    wire::LighthouseQuorumResponse response;
    wire::Quorum& quorum = *response.mutable_quorum();
    quorum.set_quorum_id(quorum_id_);
    *quorum.mutable_created() =
        google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(absl::Now()));
    state_.previous.clear();
    for (auto& [replica, parked] : chosen_) {
      *quorum.add_participants() = std::move(parked.member);
      state_.previous.push_back(replica);
    }
    // All calls share these bytes.
    const grpc::Slice slice(response.SerializeAsString());
    answer = grpc::ByteBuffer(&slice, 1);
  }
  for (const auto& [replica, parked] : chosen_) {
    work->endings.push_back(Ending{parked.call, parked.handle, answer});
  }
  chosen_.clear();
}

void Lighthouse::OnReply(Reply&& reply, DeliveryContext&) {
  Work work;
  {
    MutexLock lock(&mutex_);
    const auto* add = std::get_if<AddReply>(&reply.body);
    const Instant now = engine_.clock().Now();
    dispatcher_.OnHandled(Method::kAdd, reply.status.code(), id_asked_);
    if (reply.status.ok() && add != nullptr && add->value < first_id_) {
      // The first id after a start is above those that a coordinator without a journal has given.
      work.add_to_id = first_id_ - add->value;
    } else {
      if (reply.status.ok() && add != nullptr) {
        quorum_id_ = add->value;
        Log(LogLevel::kInfo, "torchft has a new quorum",
            {{"port", port_},
             {"quorum_id", quorum_id_},
             {"replicas", static_cast<int64_t>(chosen_.size())}});
      }
      AnswerChosen(reply.status, &work);
      Decide(now, &work);
    }
  }
  Do(std::move(work));
  dispatcher_.OnGone();
}

void Lighthouse::TellWhoIsMissing(Instant now, const std::string& reason) {
  if (!reason.empty()) {
    SubmitUnanswered(PutCall{kMissingKey, reason});
    next_telling_ = now + kBetweenTellings;
    has_told_ = true;
  } else if (std::exchange(has_told_, false)) {
    SubmitUnanswered(DeleteCall{kMissingKey});
  }
}

void Lighthouse::SubmitUnanswered(CallBody body) {
  engine_.Submit(NewCall(std::move(body)), DiscardReply::Get());
}

Call Lighthouse::NewCall(CallBody body) const {
  Call call;
  call.caller.key.tenant = TenantOfPort(port_);
  call.body = std::move(body);
  return call;
}

void Lighthouse::Do(Work work) {
  for (const Ending& ending : work.endings) {
    if (engine_.Cancel(ending.handle)) ending.call->End(ending.answer);
  }
  if (work.add_to_id == 0) return;
  // It counts as a call in flight, so that this object outlives its reply.
  dispatcher_.OnStarted(Method::kAdd);
  engine_.Submit(NewCall(AddCall{kQuorumIdKey, work.add_to_id}), this);
}

}  // namespace cohort::coordinator::torchft
