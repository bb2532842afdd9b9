#include "coordinator/core/group/group.h"

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {

Group::Group(Shard& shard, GroupKey key, GroupSpec spec, int64_t generation, int world_size)
    : shard_(shard),
      context_(shard, key),
      operations_(context_.tally.get()),
      store_(shard, key, context_.tally, operations_, context_.ledger, &context_.last_number),
      rounds_(context_),
      mailboxes_(context_),
      unique_ids_(context_),
      events_(context_),
      charge_(*context_.tally, MemoryKind::kGroups, Cost(context_.key, spec)) {
  context_.tally->account()->Count(QuotaKind::kGroups, 1);
  context_.spec = std::move(spec);
  context_.generation = generation;
  context_.world_size = world_size;
  context_.roster.Resize(world_size);
  store_.set_data_expiration(context_.spec.data_expiration);
}

Group::Group(Step& step, Shard& shard, GroupKey key, GroupSpec spec, std::string creator,
             int64_t generation)
    : Group(shard, std::move(key), spec, generation, spec.max_members) {
  creator_ = std::move(creator);
  last_arrival_ = step.now();
  WriteGroup(step);
  ScheduleLinger(step.now());
}

Group::~Group() {
  context_.tally->account()->Count(QuotaKind::kGroups, -1);
  shard_.timers.Cancel(liveness_timer_);
  shard_.timers.Cancel(join_window_timer_);
  shard_.timers.Cancel(linger_timer_);
  if (proposal_.has_value()) {
    shard_.timers.Cancel(proposal_->timer);
    for (const auto& [id, name] : proposal_->calls) shard_.waits.Done(id);
  }
  for (auto& [id, blob] : blobs_) shard_.timers.Cancel(blob.expiry);
  for (const auto& [name, member] : context_.roster.members()) {
    shard_.timers.Cancel(member->disconnect_timer);
  }
  for (const auto& [id, name] : joins_) shard_.waits.Done(id);
}

int64_t Group::Cost(const GroupKey& key, const GroupSpec& spec) {
  constexpr int64_t kTimer = NodeCost<std::pair<std::pair<Instant, TimerId>, Timers::Action>>() +
                             SlotCost<std::pair<TimerId, Instant>>();
  // std::deque sets aside one chunk of 512 bytes, and a table for chunks.
  constexpr int64_t kDeques = 6 * (512 + 64 + 32);
  constexpr int64_t kTimers = 3;
  // The key: in the shard's map, the group, its context and its store; twice more while it closes.
  return BlockCost(sizeof(Group)) + kDeques + kTimers * kTimer + BlockCost(sizeof(ByteLedger) + 16) +
         NodeCost<std::pair<GroupKey, std::unique_ptr<Group>>>() +
         6 * (CostOf(key.tenant) + CostOf(key.group)) + CostOf(spec.parameters_digest) +
         CostOf(spec.labels);
}

int64_t Group::waiter_count() const {
  return static_cast<int64_t>(joins_.size() +
                              (proposal_.has_value() ? proposal_->calls.size() : 0)) +
         rounds_.waiter_count() + mailboxes_.waiter_count() + unique_ids_.waiter_count() +
         store_.waiter_count();
}

void Group::Handle(Step& step, Call&& call) {
  // Which call would be parked is not known yet; at the limit, those that never are still go
  // through.
  const int64_t parked_count = waiter_count() + events_.watch_count() + store_.watch_count();
  if (parked_count >= shard_.limits.max_waiters_per_group && call.wait > absl::ZeroDuration()) {
    step.Fail(call.id, absl::ResourceExhaustedError(absl::StrCat(
                           "group ", context_.key.group, " has ", parked_count,
                           " parked calls; max_waiters_per_group is ",
                           shard_.limits.max_waiters_per_group)));
    return;
  }
  if (!OwnsSession(step, call)) return;
  // Receipts ride on any call of a member, reads included.
  if (!call.caller.acknowledged.empty() || !call.caller.abandoned.empty()) {
    const Member* member = context_.roster.BySession(call.caller.session);
    if (member != nullptr) Settle(step, *member, call.caller);
  }
  std::visit([&](auto& body) { Answer(step, call, body); }, call.body);
}

// --- Who calls.

bool Group::OwnsSession(Step& step, const Call& call) {
  if (call.caller.identity == nullptr || call.caller.session.empty()) return true;
  const Member* const member = context_.roster.BySession(call.caller.session);
  if (member == nullptr || member->identity.empty() || member->identity == *call.caller.identity) {
    return true;
  }
  step.Fail(call.id, absl::PermissionDeniedError(absl::StrCat(
                         "the session of member ", member->name, " of group ", context_.key.group,
                         " belongs to ", member->identity, ", not to ", *call.caller.identity)));
  return false;
}

Member* Group::Admit(Step& step, const Call& call, const char* operation, AllowedIn allowed_in) {
  const Caller& caller = call.caller;
  if (caller.session.empty()) {
    step.Fail(call.id, absl::InvalidArgumentError(absl::StrCat(
                           operation, ": scope.session is empty; only a member may call, join first")));
    return nullptr;
  }
  Member* member = context_.roster.BySession(caller.session);
  if (member == nullptr) {
    if (const Cause* why = context_.roster.WhyFenced(caller.session); why != nullptr) {
      context_.Abort(step, call.id, operation, *why);
    } else {
      step.Fail(call.id,
                absl::NotFoundError(absl::StrCat("group ", context_.key.group,
                                                 " does not know this session; join again")),
                context_.Explain(operation, Cause{}));
    }
    return nullptr;
  }
  RenewLease(step, *member);
  if (allowed_in == AllowedIn::kAnyGeneration) return member;
  if (caller.generation != 0 && caller.generation != context_.generation) {
    Cause stale = cause_;
    if (stale.empty() || caller.generation != context_.generation - 1) {
      stale = CauseOf(CauseKind::kStaleGeneration,
                      absl::StrCat("the caller is in generation ", caller.generation,
                                   ", the group in ", context_.generation),
                      step.now());
      stale.generation = caller.generation;
    }
    context_.Abort(step, call.id, operation, stale);
    return nullptr;
  }
  if (state_ == GroupState::kActive && member->confirmed()) return member;
  if (state_ == GroupState::kBroken) {
    if (allowed_in == AllowedIn::kActiveOrBroken && member->rank >= 0) return member;
    context_.Abort(step, call.id, operation, cause_);
    return nullptr;
  }
  Cause forming = cause_;
  if (forming.empty()) {
    forming = CauseOf(CauseKind::kStaleGeneration, "it is still forming; join first", step.now());
  }
  context_.Abort(step, call.id, operation, forming);
  return nullptr;
}

void Group::Settle(Step& step, const Member& member, const Caller& caller) {
  for (int64_t receipt : caller.acknowledged) {
    if (member.rank >= 0) {
      mailboxes_.Acknowledge(step, member.rank, receipt);
      rounds_.Acknowledge(step, member.rank, receipt);
      unique_ids_.Acknowledge(step, member.rank, receipt);
    }
  }
  if (member.rank >= 0 && !caller.abandoned.empty()) {
    mailboxes_.Abandon(step, member.rank, caller.abandoned);
  }
  store_.Settle(step, caller);
}

// --- The group itself.

void Group::Answer(Step& step, Call& call, CreateGroupCall& body) {
  const std::string difference = SpecDifference(context_.spec, body.spec);
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

// --- The store. Reads and writes need no rank; a session, when given, must be a living one.

template <typename StoreCall>
void Group::Answer(Step& step, Call& call, StoreCall& body) {
  if (!call.caller.session.empty() &&
      Admit(step, call, "store call", AllowedIn::kAnyGeneration) == nullptr) {
    return;
  }
  if (call.caller.session.empty()) {
    store_.Settle(step, call.caller);
  }
  store_.Handle(step, call.id, call.caller, call.wait, std::move(body));
}

// --- Waits of the group itself.

void Group::Forget(Step& step, CallId id) {
  if (auto it = joins_.find(id); it != joins_.end()) {
    Member* member = context_.roster.ByName(it->second);
    joins_.erase(it);
    if (member == nullptr || member->join_call != id) return;
    member->join_call = 0;
    member->last_heard = step.now();
    // The cancelled Join takes its confirmation back: the generation must not complete without it.
    if (state_ == GroupState::kForming && member->state == MemberState::kActive) {
      member->state = MemberState::kJoining;
    }
    // Without a stream, the call was the only sign of the member's process.
    if (member->streams.empty()) AwaitConnection(step, *member);
    return;
  }
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
    reply.missing = MissingRanks(step.now());
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
  if (!proposal_.has_value()) return;
  auto it = proposal_->calls.find(id);
  if (it == proposal_->calls.end()) return;
  if (proposal_->proposer_call == id) {
    // After a sleep of the coordinator the members' acknowledgements lie unread: none of them is
    // silent yet.
    const bool may_be_unread = proposal_->drop_silent && step.now() < shard_.resumed_until;
    if (!may_be_unread) {
      ProposalTimedOut(step);
      return;
    }
    proposal_->proposer_call = 0;
  }
  ViewReply reply = ViewFor(it->second, ViewReply::Outcome::kTimedOut);
  reply.missing = context_.roster.Missing(step.now(), proposal_->needed, proposal_->acknowledged);
  proposal_->calls.erase(it);
  step.Answer(id, std::move(reply));
}

void Group::Explain(CallId id, ParkedCall& parked) const {
  const std::string* name = nullptr;
  if (auto it = joins_.find(id); it != joins_.end()) {
    name = &it->second;
    parked.operation = absl::StrCat("join of generation ", context_.generation);
    parked.waits_on = MissingRanks(absl::InfinitePast()).missing;
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
