// How members get ranks: the checks of a Join, and its effect on the generation. group_forming.cc
// decides when the generation is complete.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"

namespace cohort::coordinator {

std::string Group::SpecDifference(const GroupSpec& ours, const GroupSpec& theirs) {
  auto differ = [](const char* what, const auto& a, const auto& b) {
    return absl::StrCat(what, " ", a, ", not ", b);
  };
  if (ours.max_members != theirs.max_members) {
    return differ("world size", ours.max_members, theirs.max_members);
  }
  if (ours.min_members != theirs.min_members) {
    return differ("min members", ours.min_members, theirs.min_members);
  }
  if (ours.parameters_digest != theirs.parameters_digest) {
    return differ("parameters digest", absl::BytesToHexString(ours.parameters_digest),
                  absl::BytesToHexString(theirs.parameters_digest));
  }
  if (ours.fate != theirs.fate) {
    return differ("fate", static_cast<int>(ours.fate), static_cast<int>(theirs.fate));
  }
  auto differ_time = [&](const char* what, absl::Duration a, absl::Duration b) {
    return a == b ? std::string() : differ(what, absl::FormatDuration(a), absl::FormatDuration(b));
  };
  for (std::string difference :
       {differ_time("lease", ours.lease, theirs.lease),
        differ_time("attached lease", ours.AttachedLease(), theirs.AttachedLease()),
        differ_time("disconnect grace", ours.disconnect_grace, theirs.disconnect_grace),
        differ_time("data expiration", ours.data_expiration, theirs.data_expiration),
        differ_time("progress timeout", ours.progress_timeout, theirs.progress_timeout),
        // A fixed group waits for all of its members, without a limit.
        ours.fixed() ? "" : differ_time("join window", ours.join_window, theirs.join_window)}) {
    if (!difference.empty()) return difference;
  }
  return "";
}

namespace {

std::string NameOf(const std::string& member, std::optional<int> rank) {
  return absl::StrCat("member ", member,
                      rank.has_value() ? absl::StrCat(" (rank ", *rank, ")") : "");
}
std::string AndOthers(int others) {
  return others == 0 ? "" : absl::StrCat(" and ", others, others == 1 ? " other" : " others");
}

}  // namespace

// A member with a different spec is refused alone. The first spec holds until more members have
// come with another one than are present with this one. That is possible only before the first
// generation is complete, and only for a spec that a member brought.
absl::Status Group::AgreeOnSpec(Step& step, const JoinCall& body) {
  if (!body.spec.has_value()) return absl::OkStatus();
  const std::string difference = SpecDifference(context_.spec, *body.spec);
  if (difference.empty()) return absl::OkStatus();
  int present = 0;  // with the spec of the group; the caller's own earlier join does not count
  for (const auto& [name, member] : context_.roster.members()) {
    if (name != body.member && member->live()) ++present;
  }
  int allies = 0;
  for (const RefusedJoin& other : refused_joins_) {
    if (other.member != body.member && SpecDifference(other.spec, *body.spec).empty()) ++allies;
  }
  const bool open = state_ == GroupState::kForming && cause_.empty() && !creator_.empty();
  if (open && allies + 1 > present) return ReplaceSpec(step, body, allies);

  if (state_ == GroupState::kForming)
    RememberRefused(step, body.member, body.rank, body.host, *body.spec, difference);
  std::string ours = "the group has ";
  if (!creator_.empty() && creator_ != body.member) {
    const Member* creator = context_.roster.ByName(creator_);
    const bool has_rank = creator != nullptr && creator->rank >= 0;
    ours = absl::StrCat(
        NameOf(creator_, has_rank ? std::optional<int>(creator->rank) : std::nullopt), " brings ");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("members of group ", context_.key.group, " disagree: ", ours, difference, " as ",
                   NameOf(body.member, body.rank), " brings; ", present,
                   present == 1 ? " member has" : " members have", " joined with the former"));
}

absl::Status Group::ReplaceSpec(Step& step, const JoinCall& body, int allies) {
  const GroupSpec previous = context_.spec;
  if (body.spec->max_members > shard_.limits.max_members) {
    return absl::ResourceExhaustedError(absl::StrCat("world size ", body.spec->max_members,
                                                     " passes max_members (",
                                                     shard_.limits.max_members, ")"));
  }
  const std::string difference = SpecDifference(*body.spec, previous);
  std::vector<Member*> members;
  for (const auto& [name, member] : context_.roster.members()) members.push_back(member.get());
  for (Member* member : members) {
    const std::optional<int> rank =
        member->rank >= 0 ? std::optional<int>(member->rank) : std::nullopt;
    const absl::Status refused = absl::FailedPreconditionError(absl::StrCat(
        "members of group ", context_.key.group, " disagree: ", NameOf(body.member, body.rank),
        AndOthers(allies), allies == 0 ? " brings " : " bring ", difference, " as ",
        NameOf(member->name, rank), " brings"));
    if (member->join_call != 0) {
      const CallId id = UnparkJoin(*member);
      if (member->name == body.member) {
        step.Fail(id, absl::CancelledError("a repeat of this call replaced it"));
      } else {
        step.Fail(id, refused, context_.Explain("join", Cause{}));
      }
    }
    if (member->name != body.member) {
      RememberRefused(step, member->name, rank, member->host, previous,
                      SpecDifference(*body.spec, previous));
    }
    const Cause cause =
        CauseOf(CauseKind::kViewChanged, *member, std::string(refused.message()), step.now());
    EndIncarnation(step, *member, cause);
    events_.Notify(step, EventKind::kLost, member, cause);
    EraseMember(step, *member);
    context_.roster.Remove(*member, cause);
  }
  context_.spec = *body.spec;
  context_.world_size = context_.spec.max_members;
  context_.roster.Resize(context_.world_size);
  store_.set_data_expiration(context_.spec.data_expiration);
  creator_ = body.member;
  member_infos_.reset();
  WriteGroup(step);
  return absl::OkStatus();
}

void Group::RememberRefused(Step& step, const std::string& member, std::optional<int> rank,
                            const std::string& host, const GroupSpec& spec,
                            const std::string& difference) {
  const auto same = std::find_if(refused_joins_.begin(), refused_joins_.end(),
                                 [&](const RefusedJoin& other) { return other.member == member; });
  if (same != refused_joins_.end()) refused_joins_.erase(same);
  RefusedJoin& refused = refused_joins_.emplace_back();
  refused.member = member;
  refused.rank = rank;
  refused.host = host;
  refused.spec = spec;
  refused.spec.labels.clear();
  refused.difference = difference;
  refused.at = step.now();
  if (refused_joins_.size() > kRefusedJoinsKept) refused_joins_.pop_front();
}

void Group::Answer(Step& step, Call& call, JoinCall& body) {
  if (shard_.draining) {
    step.Fail(call.id, absl::UnavailableError("the coordinator is draining; no joins are taken"));
    return;
  }
  if (absl::Status agreed = AgreeOnSpec(step, body); !agreed.ok()) {
    step.Fail(call.id, agreed, context_.Explain("join", Cause{}));
    return;
  }
  if (body.rank.has_value() && *body.rank >= context_.spec.max_members) {
    step.Fail(call.id, absl::InvalidArgumentError(absl::StrCat(
                           "rank ", *body.rank, " is not below the world size ",
                           context_.spec.max_members)));
    return;
  }
  if (context_.roster.WasReplaced(body.member, body.incarnation)) {
    Cause cause = CauseOf(CauseKind::kReplaced, "this is a late call of the older incarnation",
                          step.now());
    cause.member = body.member;
    context_.Abort(step, call.id, "join", cause);
    return;
  }
  Member* member = context_.roster.ByName(body.member);
  if (member == nullptr) {
    AddNewcomer(step, call, body);
    return;
  }

  if (call.caller.identity != nullptr && member->live() && !member->identity.empty() &&
      member->identity != *call.caller.identity) {
    step.Fail(call.id, absl::PermissionDeniedError(absl::StrCat(
                           "member ", member->name, " of group ", context_.key.group,
                           " belongs to ", member->identity, ", not to ", *call.caller.identity)));
    return;
  }
  const bool same_incarnation = member->incarnation == body.incarnation;
  if (same_incarnation && member->live() && state_ == GroupState::kActive && member->confirmed()) {
    // A repeat whose answer was lost.
    RenewLease(step, *member);
    member->join_call = call.id;
    member->with_members = body.with_members;
    AnswerJoin(step, *member);
    return;
  }
  if (!same_incarnation) {
    Cause cause = CauseOf(CauseKind::kReplaced, *member, "", step.now());
    EndIncarnation(step, *member, cause);
    const bool had_rank = member->rank >= 0;
    context_.roster.Replace(*member, body.incarnation, call.entropy, cause);
    if (had_rank && state_ == GroupState::kActive) Break(step, cause);
  } else if (member->session.empty()) {
    // It was lost or had left, and comes back as itself.
    context_.roster.SetSession(*member, call.entropy);
  }
  if (call.caller.identity != nullptr) member->identity = *call.caller.identity;
  member->host = body.host;
  member->addresses = body.addresses;
  member->labels = body.labels;
  member_infos_.reset();
  if (member->state == MemberState::kLost || member->state == MemberState::kLeft) {
    // Its rank ended with the generation; break that if it was only reported.
    if (state_ == GroupState::kActive) {
      Break(step, CauseOf(CauseKind::kReplaced, *member, "it came back", step.now()));
    }
    member->state = MemberState::kJoining;
  }
  if (member->state == MemberState::kCandidate && state_ == GroupState::kActive && !context_.gone.empty()) {
    Break(step, context_.gone.begin()->second);
  }
  if (state_ == GroupState::kBroken) BeginGeneration(step, cause_);
  member->progress = 0;
  member->progress_at = step.now();
  ParkJoin(step, call, *member, body.with_members);
}

bool Group::HasRoom() const {
  const auto& members = context_.roster.members();
  const int slots = context_.roster.slot_count();
  if (state_ == GroupState::kForming) {
    // Counted only when it matters, or a thousand joins look at a million members.
    if (static_cast<int>(members.size()) < slots) return true;
    return slots > std::count_if(members.begin(), members.end(), [](const auto& entry) {
             return entry.second->live() && entry.second->state != MemberState::kCandidate;
           });
  }
  if (static_cast<int>(context_.roster.by_rank().size()) < slots) return true;
  return std::any_of(context_.roster.by_rank().begin(), context_.roster.by_rank().end(),
                     [](const auto& ranked) { return !ranked.second->live(); });
}

void Group::AddNewcomer(Step& step, Call& call, JoinCall& body) {
  const int slots = context_.roster.slot_count();
  Member* holder = body.rank.has_value() ? context_.roster.ByRank(*body.rank) : nullptr;
  if (holder != nullptr && holder->live()) {
    step.Fail(call.id,
              absl::AlreadyExistsError(absl::StrCat("rank ", *body.rank, " of group ", context_.key.group,
                                                    " is held by live member ", holder->name,
                                                    holder->host.empty() ? "" : " on ", holder->host)),
              context_.Explain("join", Cause{}));
    return;
  }
  auto member = std::make_unique<Member>();
  member->name = body.member;
  member->incarnation = body.incarnation;
  member->session = call.entropy;
  if (call.caller.identity != nullptr) member->identity = *call.caller.identity;
  member->host = body.host;
  member->addresses = body.addresses;
  member->labels = body.labels;
  member->joined_at = member->last_heard = member->operation_at = member->progress_at = step.now();

  // A newcomer that takes the place of a member that left or was lost adds none.
  const bool replaces = holder != nullptr || !context_.gone.empty();
  absl::Status quota = CheckCount(*context_.tally->account(), QuotaKind::kMembers, shard_.limits);
  if (!quota.ok() && !replaces) return step.Fail(call.id, std::move(quota));
  const bool room = HasRoom();
  const bool wants_rank_beyond = body.rank.has_value() && *body.rank >= slots;
  if (!room || wants_rank_beyond) {
    if (state_ == GroupState::kForming && context_.spec.fixed()) {
      step.Fail(call.id,
                absl::ResourceExhaustedError(absl::StrCat("group ", context_.key.group, " has ",
                                                          slots, " rank slots and all are taken")));
      return;
    }
    int64_t candidates = 0;
    for (const auto& [name, other] : context_.roster.members()) {
      if (other->state == MemberState::kCandidate) ++candidates;
    }
    if (candidates >= shard_.limits.max_candidates) {
      step.Fail(call.id,
                absl::ResourceExhaustedError(absl::StrCat(
                    "no rank slot of group ", context_.key.group, " is free, and ", candidates,
                    " wait to be added; max_candidates is ", shard_.limits.max_candidates)));
      return;
    }
    member->state = MemberState::kCandidate;
    may_have_candidates_ = true;
    Member& candidate = context_.roster.Add(std::move(member));
    ParkJoin(step, call, candidate, body.with_members);
    events_.Notify(step, EventKind::kCandidate, &candidate, Cause{});
    return;
  }

  if (state_ == GroupState::kActive) {
    // A member left, or was lost without breaking the generation: the newcomer takes its rank in
    // the next generation.
    Cause why = context_.gone.empty() ? Cause{} : context_.gone.begin()->second;
    if (holder != nullptr && context_.WhyGone(holder->rank) != nullptr) why = *context_.WhyGone(holder->rank);
    Break(step, why);
  }
  if (state_ == GroupState::kBroken) BeginGeneration(step, cause_);
  Member& added = context_.roster.Add(std::move(member));
  if (body.rank.has_value()) context_.roster.AssignRank(added, *body.rank);
  events_.Notify(step, EventKind::kJoined, &added, Cause{});
  ParkJoin(step, call, added, body.with_members);
}

void Group::ParkJoin(Step& step, Call& call, Member& member, bool with_members) {
  if (member.join_call != 0) {
    step.Fail(UnparkJoin(member), absl::CancelledError("a repeat of this call replaced it"));
  }
  shard_.timers.Cancel(linger_timer_);
  shard_.timers.Cancel(member.disconnect_timer);
  member.join_call = call.id;
  member.with_members = with_members;
  member.last_heard = step.now();
  member.Begin("join", "", context_.generation, step.now());
  last_arrival_ = step.now();
  if (member.state != MemberState::kCandidate) member.state = MemberState::kActive;
  context_.roster.Recharge(member);
  member_infos_.reset();
  joins_[call.id] = member.name;
  shard_.waits.Park(call.id, this, *context_.tally, step.now(), step.now() + call.wait);
  WriteMember(step, member);
  if (liveness_timer_ == 0) ScheduleLiveness(step.now());
  FillSlots(step);
  if (member.state != MemberState::kCandidate) MaybeComplete(step);
}

void Group::BeginGeneration(Step& step, const Cause& cause) {
  // It was about the generation that is given up here.
  if (proposal_.has_value()) EndProposal(step, ViewReply::Outcome::kRefused, cause);
  rounds_.Break(step, cause, false);
  rounds_.Clear(step);
  mailboxes_.Clear(step);
  unique_ids_.Clear(step);
  context_.gone.clear();
  ++context_.generation;
  state_ = GroupState::kForming;
  cause_ = cause;
  std::vector<Member*> members;
  for (const auto& [name, member] : context_.roster.members()) members.push_back(member.get());
  for (Member* member : members) {
    if (member->state == MemberState::kLost || member->state == MemberState::kLeft) {
      EraseMember(step, *member);
      context_.roster.Remove(*member, cause);
    } else if (member->state != MemberState::kCandidate) {
      member->state = MemberState::kJoining;
      WriteMember(step, *member);
    }
  }
  // A fixed group keeps the size of its last view; an elastic one may fill up again.
  if (!context_.spec.fixed()) {
    context_.world_size = context_.spec.max_members;
    context_.roster.Resize(std::max(context_.roster.slot_count(), context_.world_size));
  }
  member_infos_.reset();
  WriteGroup(step);
}

}  // namespace cohort::coordinator
