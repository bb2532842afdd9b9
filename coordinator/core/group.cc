#include "coordinator/core/group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kWaitsShown = 100;
constexpr size_t kDumped = 10000;
constexpr absl::Duration kBlobLife = absl::Seconds(60);

}  // namespace

Group::Group(Step& step, Shard& shard, GroupKey key, GroupSpec spec, int64_t generation)
    : shard_(shard),
      context_(shard, key),
      store_(shard, key, operations_, context_.ledger, &context_.last_number),
      rounds_(context_),
      mailboxes_(context_),
      unique_ids_(context_),
      events_(context_.last_number),
      last_arrival_(step.now()) {
  context_.spec = std::move(spec);
  context_.generation = generation;
  context_.world_size = context_.spec.max_members;
  context_.roster.Resize(context_.world_size);
  store_.set_data_expiration(context_.spec.data_expiration);
  WriteGroup(step);
  ScheduleLinger(step.now());
}

Group::~Group() {
  shard_.timers.Cancel(liveness_timer_);
  shard_.timers.Cancel(join_window_timer_);
  shard_.timers.Cancel(linger_timer_);
  shard_.timers.Cancel(tell_timer_);
  if (proposal_.has_value()) {
    shard_.timers.Cancel(proposal_->timer);
    for (const auto& [id, name] : proposal_->calls) shard_.waits.Done(id);
  }
  for (auto& [id, blob] : blobs_) shard_.timers.Cancel(blob.expiry);
  for (const auto& [name, member] : context_.roster.members()) {
    shard_.timers.Cancel(member->disconnect_timer);
  }
  for (const auto& [id, name] : joins_) shard_.waits.Done(id);
  for (const auto& [id, revision] : watches_) shard_.waits.Done(id);
}

int64_t Group::waiter_count() const {
  return static_cast<int64_t>(joins_.size() + watches_.size() +
                              (proposal_.has_value() ? proposal_->calls.size() : 0)) +
         rounds_.waiter_count() + mailboxes_.waiter_count() + unique_ids_.waiter_count() +
         store_.waiter_count();
}

void Group::Handle(Step& step, Call&& call) {
  // Which call would be parked is not known yet; at the limit, those that never are still go through.
  if (waiter_count() >= shard_.limits.max_waiters_per_group && call.wait > absl::ZeroDuration()) {
    step.Fail(call.id, absl::ResourceExhaustedError(absl::StrCat(
                           "group ", context_.key.group, " has ", waiter_count(),
                           " parked calls; max_waiters_per_group is ",
                           shard_.limits.max_waiters_per_group)));
    return;
  }
  // Receipts ride on any call of a member, reads included.
  if (!call.caller.acknowledged.empty()) {
    const Member* member = context_.roster.BySession(call.caller.session);
    if (member != nullptr) Acknowledge(step, *member, call.caller);
  }
  std::visit([&](auto& body) { Answer(step, call, body); }, call.body);
}

// --- Who calls.

Member* Group::Admit(Step& step, const Call& call, const char* operation, Standing standing) {
  const Caller& caller = call.caller;
  if (caller.session.empty()) {
    step.Fail(call.id, absl::InvalidArgumentError(absl::StrCat(
                           operation, ": scope.session is empty; only a member may call, join first")));
    return nullptr;
  }
  Member* member = context_.roster.BySession(caller.session);
  if (member == nullptr) {
    if (const Cause* why = context_.roster.WhyFenced(caller.session); why != nullptr) {
      step.Fail(call.id, context_.Aborted(operation, *why), context_.Explain(operation, *why));
    } else {
      step.Fail(call.id,
                absl::NotFoundError(absl::StrCat("group ", context_.key.group,
                                                 " does not know this session; join again")),
                context_.Explain(operation, Cause{}));
    }
    return nullptr;
  }
  Heard(step, *member);
  if (standing == Standing::kAnyGeneration) return member;
  if (caller.generation != 0 && caller.generation != context_.generation) {
    Cause stale = cause_;
    if (stale.empty() || caller.generation != context_.generation - 1) {
      stale = Cause{};
      stale.kind = CauseKind::kStaleGeneration;
      stale.detail = absl::StrCat("the caller is in generation ", caller.generation, ", the group in ",
                                  context_.generation);
      stale.generation = caller.generation;
      stale.at = step.now();
    }
    step.Fail(call.id, context_.Aborted(operation, stale), context_.Explain(operation, stale));
    return nullptr;
  }
  if (state_ == GroupState::kActive && member->confirmed()) return member;
  if (state_ == GroupState::kBroken) {
    if (standing == Standing::kBrokenToo && member->rank >= 0) return member;
    step.Fail(call.id, context_.Aborted(operation, cause_), context_.Explain(operation, cause_));
    return nullptr;
  }
  Cause forming = cause_;
  if (forming.empty()) {
    forming.kind = CauseKind::kStaleGeneration;
    forming.detail = "it is still forming; join first";
    forming.generation = context_.generation;
    forming.at = step.now();
  }
  step.Fail(call.id, context_.Aborted(operation, forming), context_.Explain(operation, forming));
  return nullptr;
}

template <typename R>
bool Group::Repeated(Step& step, const Call& call) {
  const ReplyBody* first = operations_.Find(call.caller.operation_id);
  if (first == nullptr) return false;
  if (std::holds_alternative<R>(*first)) {
    step.Answer(call.id, *first);
  } else {
    step.Fail(call.id, absl::InvalidArgumentError("operation id was used for another call"));
  }
  return true;
}

void Group::Acknowledge(Step& step, const Member& member, const Caller& caller) {
  for (int64_t receipt : caller.acknowledged) {
    mailboxes_.Acknowledge(step, receipt);
    if (member.rank >= 0) {
      rounds_.Acknowledge(step, member.rank, receipt);
      unique_ids_.Acknowledge(step, member.rank, receipt);
    }
    store_.Acknowledge(step, receipt);
  }
}

// --- The group itself.

void Group::Answer(Step& step, Call& call, CreateGroupCall& body) {
  const std::string difference = SpecDifference(body.spec);
  if (difference.empty()) {
    step.Answer(call.id, CreateGroupReply{context_.generation});
  } else {
    step.Fail(call.id, absl::AlreadyExistsError(
                           absl::StrCat("group ", context_.key.group, " exists with ", difference)));
  }
}

GroupInfo Group::Describe(Instant now, bool with_members) const {
  GroupInfo info;
  info.name = context_.key.group;
  info.generation = context_.generation;
  info.state = state_;
  info.spec = context_.spec;
  info.world_size = context_.world_size;
  info.revision = events_.newest();
  info.cause = state_ == GroupState::kBroken ? cause_ : Cause{};
  info.bytes_held = context_.ledger->held();
  info.waiter_count = waiter_count();
  if (with_members) info.members = context_.roster.Infos(now);
  if (proposal_.has_value()) info.proposal = proposal_->view;
  return info;
}

void Group::Answer(Step& step, Call& call, GetGroupCall&) {
  step.Answer(call.id, GetGroupReply{Describe(step.now(), true)});
}

void Group::Answer(Step& step, Call& call, ListGroupsCall&) {
  step.Answer(call.id, ListGroupsReply{{Describe(step.now(), false)}});
}

// --- Rounds.

absl::StatusOr<Payload> Group::Resolve(const Member& member, Value& value) {
  if (value.blob != 0) {
    auto it = blobs_.find(value.blob);
    if (it == blobs_.end() || it->second.member != member.name) {
      return absl::NotFoundError(absl::StrCat("blob ", value.blob, " is not there: it was used, expired, "
                                              "or uploaded by another member; upload it again"));
    }
    return it->second.payload;
  }
  if (absl::Status room = context_.CheckRoom(static_cast<int64_t>(value.bytes.size())); !room.ok()) {
    return room;
  }
  return Payload(std::move(value.bytes), context_.ledger);
}

// One value that holds several, one after the other, becomes those.
absl::Status Group::Cut(const std::vector<int64_t>& sizes, std::vector<Payload>& values) const {
  const Payload whole = values[0];
  int64_t offset = 0;
  std::vector<Payload> parts;
  for (int64_t size : sizes) {
    if (size < 0 || size > whole.size() - offset) break;
    parts.emplace_back(whole.bytes().substr(offset, size), context_.ledger);
    offset += size;
  }
  if (parts.size() != sizes.size() || offset != whole.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("values.sizes_bytes do not add up to the ", whole.size(), " bytes of the blob"));
  }
  values = std::move(parts);
  return absl::OkStatus();
}

void Group::Answer(Step& step, Call& call, EnterRoundCall& body) {
  const Standing standing =
      body.kind == RoundKind::kAgreeAlive ? Standing::kBrokenToo : Standing::kActiveOnly;
  Member* member = Admit(step, call, RoundKindName(body.kind), standing);
  if (member == nullptr) return;
  std::vector<Payload> values;
  const bool brings = body.kind == RoundKind::kAllGather || body.kind == RoundKind::kGather ||
                      (body.root == member->rank && (body.kind == RoundKind::kBroadcast ||
                                                     body.kind == RoundKind::kScatter));
  if (brings) {
    if (body.values.empty()) body.values.resize(1);  // no value is an empty one
    for (Value& value : body.values) {
      absl::StatusOr<Payload> payload = Resolve(*member, value);
      if (!payload.ok()) {
        step.Fail(call.id, payload.status());
        return;
      }
      values.push_back(*std::move(payload));
    }
    if (!body.sizes.empty()) {
      absl::Status cut = Cut(body.sizes, values);
      if (!cut.ok()) {
        step.Fail(call.id, cut);
        return;
      }
    }
  }
  rounds_.Enter(step, call.id, *member, call.wait, body, std::move(values));
  for (const Value& value : body.values) DropBlob(value.blob);
}

void Group::Answer(Step& step, Call& call, CancelRoundCall& body) {
  if (Admit(step, call, "cancel barrier", Standing::kActiveOnly) == nullptr) return;
  if (Repeated<CancelRoundReply>(step, call)) return;
  const CancelRoundReply reply{rounds_.Cancel(step, body.name, body.number, body.reason)};
  operations_.Remember(step, context_.key, call.caller.operation_id, reply, shard_.limits);
  step.Answer(call.id, reply);
}

// --- Objects.

void Group::Answer(Step& step, Call& call, SendCall& body) {
  Member* member = Admit(step, call, "send", Standing::kActiveOnly);
  if (member == nullptr) return;
  const Id128 operation = call.caller.operation_id;
  if (const ReplyBody* again = operations_.Find(operation); again != nullptr) {
    const SendReply* first = std::get_if<SendReply>(again);
    if (first == nullptr) {
      step.Fail(call.id, absl::InvalidArgumentError("operation id was used for another call"));
    } else if (!body.wait_consumed) {
      step.Answer(call.id, *first);
    } else {
      mailboxes_.AwaitConsumed(step, call.id, call.wait, first->sequence);
    }
    return;
  }
  member->operation = "send";
  member->operation_name = body.tag;
  member->operation_number = 0;
  member->operation_at = step.now();
  absl::StatusOr<Payload> payload = Resolve(*member, body.value);
  absl::StatusOr<int64_t> sequence =
      payload.ok() ? mailboxes_.Send(step, call.id, *member, call.wait, body, *std::move(payload))
                   : absl::StatusOr<int64_t>(payload.status());
  if (!sequence.ok()) {
    const Cause* why = context_.WhyGone(body.destination);
    step.Fail(call.id, sequence.status(), why == nullptr ? nullptr : context_.Explain("send", *why));
    return;
  }
  DropBlob(body.value.blob);
  operations_.Remember(step, context_.key, operation, SendReply{*sequence, false}, shard_.limits);
  if (!body.wait_consumed) step.Answer(call.id, SendReply{*sequence, false});
}

void Group::Answer(Step& step, Call& call, ReceiveCall& body) {
  Member* member = Admit(step, call, "receive", Standing::kActiveOnly);
  if (member == nullptr) return;
  member->operation = "receive";
  member->operation_name = body.tag;
  member->operation_number = 0;
  member->operation_at = step.now();
  mailboxes_.Receive(step, call.id, *member, call.caller.operation_id, call.wait, body);
}

void Group::Answer(Step& step, Call& call, ExpireCall& body) {
  if (Admit(step, call, "expire", Standing::kActiveOnly) == nullptr) return;
  if (Repeated<ExpireReply>(step, call)) return;
  ExpireReply reply;
  const absl::Duration older_than = body.older_than.value_or(context_.spec.data_expiration);
  mailboxes_.Expire(step, older_than, reply.object_count, reply.size_bytes);
  rounds_.Expire(step, older_than, reply.object_count, reply.size_bytes);
  operations_.Remember(step, context_.key, call.caller.operation_id, reply, shard_.limits);
  step.Answer(call.id, reply);
}

void Group::Answer(Step& step, Call& call, StatsCall&) {
  StatsReply reply;
  reply.object_count = mailboxes_.object_count();
  reply.unacknowledged_count = mailboxes_.unacknowledged_count();
  reply.open_round_count = rounds_.open_count();
  reply.round_name_count = rounds_.name_count();
  reply.waiter_count = waiter_count();
  reply.bytes_held = context_.ledger->held();
  reply.barriers_released = rounds_.released_barriers();
  reply.objects_expired = mailboxes_.expired_count();
  reply.key_count = store_.key_count();
  step.Answer(call.id, reply);
}

void Group::Answer(Step& step, Call& call, PutBlobCall& body) {
  Member* member = Admit(step, call, "upload", Standing::kActiveOnly);
  if (member == nullptr) return;
  if (static_cast<int64_t>(blobs_.size()) >= shard_.limits.max_blobs) {
    step.Fail(call.id, absl::ResourceExhaustedError(
                           absl::StrCat("group ", context_.key.group, " has ", blobs_.size(),
                                        " unused blobs; max_blobs is ", shard_.limits.max_blobs)));
    return;
  }
  Value value;
  value.bytes = std::move(body.bytes);
  absl::StatusOr<Payload> payload = Resolve(*member, value);
  if (!payload.ok()) {
    step.Fail(call.id, payload.status());
    return;
  }
  const int64_t id = context_.NextNumber();
  Blob& blob = blobs_[id];
  blob.payload = *std::move(payload);
  blob.member = member->name;
  blob.expiry = shard_.timers.Schedule(step.now() + kBlobLife, [this, id](Step&) { DropBlob(id); });
  step.Answer(call.id, PutBlobReply{id});
}

void Group::Answer(Step& step, Call& call, GetBlobCall& body) {
  Member* member = Admit(step, call, "download", Standing::kActiveOnly);
  if (member == nullptr) return;
  auto it = blobs_.find(body.blob);
  if (it == blobs_.end() || it->second.member != member->name) {
    step.Fail(call.id, absl::NotFoundError(absl::StrCat("blob ", body.blob, " is not there")));
    return;
  }
  step.Answer(call.id, GetBlobReply{it->second.payload});
}

void Group::DropBlob(int64_t id) {
  auto it = blobs_.find(id);
  if (it == blobs_.end()) return;
  shard_.timers.Cancel(it->second.expiry);
  blobs_.erase(it);
}

// --- The store. Reads and writes need no seat; a session, when given, must be a living one.

template <typename StoreCall>
void Group::Answer(Step& step, Call& call, StoreCall& body) {
  if (!call.caller.session.empty() &&
      Admit(step, call, "store call", Standing::kAnyGeneration) == nullptr) {
    return;
  }
  if (call.caller.session.empty()) {
    for (int64_t receipt : call.caller.acknowledged) store_.Acknowledge(step, receipt);
  }
  store_.Handle(step, call.id, call.caller, call.wait, std::move(body));
}

// --- Unique ids.

void Group::Answer(Step& step, Call& call, PublishIdsCall& body) {
  Member* member = Admit(step, call, "publish unique ids", Standing::kActiveOnly);
  if (member != nullptr) unique_ids_.Publish(step, call.id, *member, body);
}

void Group::Answer(Step& step, Call& call, FetchIdsCall& body) {
  Member* member = Admit(step, call, "fetch unique ids", Standing::kActiveOnly);
  if (member == nullptr) return;
  member->operation = "fetch unique ids";
  member->operation_name = body.name;
  member->operation_number = 0;
  member->operation_at = step.now();
  unique_ids_.Fetch(step, call.id, *member, call.wait, body);
}

void Group::Answer(Step& step, Call& call, ReportInitCall& body) {
  Member* member = Admit(step, call, "report init", Standing::kActiveOnly);
  if (member != nullptr) unique_ids_.Report(step, call.id, *member, body);
}

// --- For people.

void Group::Answer(Step& step, Call& call, WhoIsMissingCall&) {
  WhoIsMissingReply reply;
  reply.group = context_.key.group;
  reply.generation = context_.generation;
  reply.state = state_;
  reply.cause = state_ == GroupState::kActive ? Cause{} : cause_;
  reply.world_size = context_.world_size;
  if (state_ == GroupState::kForming && !context_.roster.members().empty()) {
    OpenWait wait;
    wait.operation = absl::StrCat("join of generation ", context_.generation);
    wait.missing = MissingSeats(step.now());
    Instant since = step.now(), deadline = step.now();
    for (const auto& [id, name] : joins_) {
      const WaitTable::Entry* entry = shard_.waits.Find(id);
      if (entry == nullptr) continue;
      since = std::min(since, entry->since);
      deadline = std::max(deadline, entry->deadline);
    }
    wait.age = step.now() - since;
    wait.remaining = deadline - step.now();
    reply.waits.push_back(std::move(wait));
  }
  if (proposal_.has_value()) {
    OpenWait wait;
    wait.operation = absl::StrCat("view proposal ", proposal_->view.id, " of ", proposal_->view.proposer);
    wait.missing =
        context_.roster.Missing(step.now(), proposal_->needed, proposal_->acknowledged);
    reply.waits.push_back(std::move(wait));
  }
  rounds_.Describe(step.now(), reply.waits);
  mailboxes_.Describe(step.now(), reply.waits);
  unique_ids_.Describe(step.now(), reply.waits, reply.inits);
  std::stable_sort(reply.waits.begin(), reply.waits.end(),
                   [](const OpenWait& a, const OpenWait& b) { return a.age > b.age; });
  if (reply.waits.size() > kWaitsShown) reply.waits.resize(kWaitsShown);
  step.Answer(call.id, std::move(reply));
}

void Group::Answer(Step& step, Call& call, DumpWaitsCall&) {
  DumpWaitsReply reply;
  for (CallId id : shard_.waits.Ids()) {
    const WaitTable::Entry* entry = shard_.waits.Find(id);
    if (entry->owner != this && entry->owner != &rounds_ && entry->owner != &mailboxes_ &&
        entry->owner != &unique_ids_ && entry->owner != &store_) {
      continue;
    }
    ++reply.total_count;
    if (reply.calls.size() == kDumped) continue;
    ParkedCall parked;
    entry->owner->Explain(id, parked);
    if (entry->owner == &store_) {
      if (const Member* member = context_.roster.BySession(store_.SessionOf(id)); member != nullptr) {
        parked.member = member->name;
        parked.rank = member->rank;
      }
    }
    parked.age = step.now() - entry->since;
    parked.remaining = entry->deadline - step.now();
    reply.calls.push_back(std::move(parked));
  }
  step.Answer(call.id, std::move(reply));
}

void Group::TellDraining(Step& step) { Tell(step, EventKind::kDraining, nullptr, Cause{}); }

// --- Waits of the group itself.

void Group::Forget(Step& step, CallId id) {
  if (auto it = joins_.find(id); it != joins_.end()) {
    Member* member = context_.roster.ByName(it->second);
    joins_.erase(it);
    if (member == nullptr || member->join_call != id) return;
    member->join_call = 0;
    member->last_heard = step.now();
    // It takes its confirmation back: nobody shall be told that the view is complete while this one is away.
    if (state_ == GroupState::kForming && member->state == MemberState::kActive) {
      member->state = MemberState::kJoining;
    }
    return;
  }
  if (watches_.erase(id) != 0) return;
  if (proposal_.has_value()) {
    proposal_->calls.erase(id);
    if (proposal_->proposer_call == id) proposal_->proposer_call = 0;
  }
}

void Group::TimeOut(Step& step, CallId id) {
  if (auto it = joins_.find(id); it != joins_.end()) {
    Member* member = context_.roster.ByName(it->second);
    JoinReply reply;
    reply.timed_out = true;
    reply.missing = MissingSeats(step.now());
    if (member != nullptr) {
      reply.session = member->session;
      reply.rank = member->rank;
    }
    reply.world_size = context_.world_size;
    reply.generation = context_.generation;
    reply.revision = events_.newest();
    reply.lease = context_.spec.lease;
    Forget(step, id);
    step.Answer(id, std::move(reply));
    return;
  }
  if (auto it = watches_.find(id); it != watches_.end()) {
    const int64_t from = it->second;
    watches_.erase(it);
    AnswerWatch(step, id, from);
    return;
  }
  if (!proposal_.has_value()) return;
  auto it = proposal_->calls.find(id);
  if (it == proposal_->calls.end()) return;
  if (proposal_->proposer_call == id) {
    ProposalTimedOut(step);
    return;
  }
  ViewReply reply = ViewFor(it->second, ViewReply::Outcome::kTimedOut);
  reply.missing = context_.roster.Missing(step.now(), proposal_->needed, proposal_->acknowledged);
  proposal_->calls.erase(it);
  step.Answer(id, std::move(reply));
}

void Group::Explain(CallId id, ParkedCall& parked) const {
  parked.group = context_.key.group;
  const std::string* name = nullptr;
  if (auto it = joins_.find(id); it != joins_.end()) {
    name = &it->second;
    parked.operation = absl::StrCat("join of generation ", context_.generation);
    parked.waits_on = MissingSeats(absl::InfinitePast()).missing;
  } else if (watches_.count(id) != 0) {
    parked.operation = "watch of events";
  } else if (proposal_.has_value()) {
    if (auto call = proposal_->calls.find(id); call != proposal_->calls.end()) name = &call->second;
    parked.operation = absl::StrCat("view proposal ", proposal_->view.id);
    parked.waits_on = proposal_->needed.Minus(proposal_->acknowledged).ToRanges();
  }
  if (name != nullptr) {
    parked.member = *name;
    auto it = context_.roster.members().find(*name);
    if (it != context_.roster.members().end()) parked.rank = it->second->rank;
  }
}

}  // namespace cohort::coordinator
