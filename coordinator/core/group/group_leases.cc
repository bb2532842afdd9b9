// Leases, streams, losses and leaving: how members go, and how a generation breaks.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"

namespace cohort::coordinator {
namespace {

// How often leases are checked: often enough to report a loss well within lease + 1 s.
absl::Duration Granularity(absl::Duration lease) {
  return std::clamp(lease / 64, absl::Milliseconds(10), absl::Milliseconds(250));
}

}  // namespace

Cause Group::CauseOf(CauseKind kind, std::string detail, Instant now) const {
  Cause cause;
  cause.kind = kind;
  cause.detail = std::move(detail);
  cause.generation = context_.generation;
  cause.at = now;
  return cause;
}

Cause Group::CauseOf(CauseKind kind, const Member& member, std::string detail, Instant now) const {
  Cause cause = CauseOf(kind, std::move(detail), now);
  cause.member = member.name;
  if (member.rank >= 0) cause.rank = member.rank;
  cause.host = member.host;
  return cause;
}

void Group::RenewLease(Step& step, Member& member) {
  member.last_heard = step.now();
  if (member.state == MemberState::kSuspected) {
    member.state = MemberState::kActive;
    events_.Notify(step, EventKind::kRecovered, &member, Cause{});
  }
}

// An open attached stream is a sign of life, but only for a limited time: the process may hang
// forever.
Instant Group::LostAt(const Member& member) const {
  const Instant limit = member.last_heard + context_.spec.AttachedLease();
  if (!member.streams.empty()) return limit;
  return std::min(limit, std::max(member.last_heard, member.attached_until) + context_.spec.lease);
}

void Group::ScheduleLiveness(Instant now) {
  // Later calls of members only postpone deadlines, so the timer may be early but not late.
  const absl::Duration lease = context_.spec.lease;
  Instant next = absl::InfiniteFuture();
  for (const auto& [name, member] : context_.roster.members()) {
    if (!member->live() || member->join_call != 0) continue;
    next = std::min(next, LostAt(*member));
    if (member->state != MemberState::kSuspected) {
      next = std::min(next, member->last_heard + lease * 2 / 3);
    }
    if (context_.spec.progress_timeout > absl::ZeroDuration() && state_ == GroupState::kActive) {
      next = std::min(next, member->progress_at + context_.spec.progress_timeout);
    }
  }
  if (next == absl::InfiniteFuture()) {
    shard_.timers.Cancel(liveness_timer_);
    // Only parked joins: they need no lease, but one may end without a word.
    if (joins_.empty()) return;
    next = now + lease;
  }
  StartLivenessTimer(now, next);
}

void Group::StartLivenessTimer(Instant now, Instant next) {
  shard_.timers.Cancel(liveness_timer_);
  next = std::max(next, now + Granularity(context_.spec.lease));
  liveness_at_ = next;
  liveness_timer_ = shard_.timers.Schedule(next, [this](Step& step) {
    liveness_timer_ = 0;
    CheckLiveness(step);
    if (!closed()) ScheduleLiveness(step.now());
  });
}

void Group::CheckLiveness(Step& step) {
  const absl::Duration lease = context_.spec.lease;
  std::vector<std::string> names;
  for (const auto& [name, member] : context_.roster.members()) names.push_back(name);
  std::optional<RankSet> waiting;  // read when it is needed
  for (const std::string& name : names) {
    Member* member = context_.roster.ByName(name);
    if (member == nullptr || !member->live() || member->join_call != 0) continue;
    const absl::Duration silent = step.now() - member->last_heard;
    if (step.now() >= LostAt(*member)) {
      const bool attached = !member->streams.empty();
      Lose(step, *member,
           CauseOf(
               CauseKind::kLeaseExpired, *member,
               absl::StrCat("no call for ", absl::FormatDuration(silent), ", its ",
                            attached ? "attached lease" : "lease", " is ",
                            absl::FormatDuration(attached ? context_.spec.AttachedLease() : lease)),
               step.now()));
      continue;
    }
    const absl::Duration stalled = step.now() - member->progress_at;
    if (context_.spec.progress_timeout > absl::ZeroDuration() && state_ == GroupState::kActive &&
        stalled >= context_.spec.progress_timeout) {
      // A member that waits in a round cannot progress and did not cause the stall. Its progress
      // timeout starts again with the release.
      if (!waiting.has_value()) waiting = rounds_.WaitingRanks();
      if (member->rank >= 0 && waiting->Contains(member->rank)) {
        member->progress_at = step.now();
        continue;
      }
      Lose(step, *member,
           CauseOf(CauseKind::kNoProgress, *member,
                   absl::StrCat("no progress for ", absl::FormatDuration(stalled), " in ",
                                member->progress_operation.empty() ? member->operation
                                                                   : member->progress_operation),
                   step.now()));
      continue;
    }
    if (silent >= lease * 2 / 3 && member->state == MemberState::kActive &&
        state_ == GroupState::kActive) {
      member->state = MemberState::kSuspected;
      events_.Notify(
          step, EventKind::kSuspected, member,
          CauseOf(CauseKind::kLeaseExpired, *member,
                  absl::StrCat("silent for ", absl::FormatDuration(silent)), step.now()));
    }
  }
}

// The member has no connection any more: it is lost unless it connects again within the grace.
void Group::AwaitConnection(Step& step, Member& member) {
  shard_.timers.Cancel(member.disconnect_timer);
  const absl::Duration grace =
      std::max(context_.spec.disconnect_grace, shard_.resumed_until - step.now());
  member.disconnect_timer =
      shard_.timers.Schedule(step.now() + grace, [this, grace, name = member.name](Step& s) {
        Member* gone = context_.roster.ByName(name);
        if (gone == nullptr || !gone->live()) return;
        gone->disconnect_timer = 0;
        Lose(s, *gone,
             CauseOf(CauseKind::kConnectionLost, *gone,
                     absl::StrCat("not renewed within ", absl::FormatDuration(grace)), s.now()));
      });
}

// The member is dead, or has to be treated as dead.
void Group::Lose(Step& step, Member& member, Cause cause) {
  ++members_lost_;
  EndIncarnation(step, member, cause);
  if (state_ == GroupState::kForming || member.state == MemberState::kCandidate) {
    events_.Notify(step, EventKind::kLost, &member, cause);
    MemberGoneFromProposal(step, member, cause);
    EraseMember(step, member);
    context_.roster.Remove(member, cause);
    FillSlots(step);
    CloseIfEmpty(step, cause);
    return;
  }
  member.state = MemberState::kLost;
  context_.roster.Fence(member, cause);
  WriteMember(step, member);
  events_.Notify(step, EventKind::kLost, &member, cause);
  const bool breaks = state_ == GroupState::kActive && context_.spec.fate == Fate::kShare;
  OnGoneWhileActive(step, member, cause);
  if (breaks) Break(step, cause);
  MemberGoneFromProposal(step, member, cause);
  CloseIfEmpty(step, cause);
}

void Group::EndIncarnation(Step& step, Member& member, const Cause& cause) {
  shard_.timers.Cancel(member.disconnect_timer);
  member.streams.clear();
  store_.EndSession(step, member.session);
  store_.FailSession(step, member.session, context_.Aborted("store call", cause),
                     context_.Explain("store call", cause));
  if (member.join_call != 0) context_.Abort(step, UnparkJoin(member), "join", cause);
  if (proposal_.has_value()) {
    for (auto it = proposal_->calls.begin(); it != proposal_->calls.end();) {
      const auto call = it++;
      if (call->second != member.name) continue;
      shard_.waits.Done(call->first);
      if (proposal_->proposer_call == call->first) proposal_->proposer_call = 0;
      context_.Abort(step, call->first, "view", cause);
      proposal_->calls.erase(call);
    }
  }
  member_infos_.reset();
}

// The member keeps its rank, but will not act any more in this generation.
void Group::OnGoneWhileActive(Step& step, Member& member, const Cause& cause) {
  context_.gone.emplace(member.rank, cause);
  rounds_.MemberGone(step, member.rank, cause);
  if (state_ != GroupState::kActive) return;
  mailboxes_.MemberGone(step, member.rank, cause);
  unique_ids_.MemberGone(step, member.rank, cause);
}

void Group::Break(Step& step, const Cause& cause) {
  state_ = GroupState::kBroken;
  cause_ = cause;
  events_.Notify(step, EventKind::kBroken, nullptr, cause);
  rounds_.Break(step, cause, true);
  mailboxes_.Break(step, cause);
  mailboxes_.Clear(step);
  unique_ids_.Break(step, cause);
  unique_ids_.Clear(step);
  WriteGroup(step);
}

void Group::Close(Step& step, Cause cause) {
  if (closed()) return;
  events_.Notify(step, EventKind::kClosed, nullptr, cause);
  if (proposal_.has_value()) EndProposal(step, ViewReply::Outcome::kRefused, cause);
  rounds_.Break(step, cause, false);
  mailboxes_.Break(step, cause);
  unique_ids_.Break(step, cause);
  store_.FailAll(step, context_.Aborted("store call", cause),
                 context_.Explain("store call", cause));
  const auto joins = std::move(joins_);
  joins_.clear();
  for (const auto& [id, name] : joins) {
    shard_.waits.Done(id);
    context_.Abort(step, id, "join", cause);
  }
  for (RecordKind kind :
       {RecordKind::kGroup, RecordKind::kMember, RecordKind::kObject, RecordKind::kRoundName,
        RecordKind::kRoundEnd, RecordKind::kKey, RecordKind::kQueueItem, RecordKind::kOperation,
        RecordKind::kUniqueId, RecordKind::kSendOrder}) {
    step.EraseAll(context_.key, kind);
  }
  state_ = GroupState::kClosed;
  cause_ = std::move(cause);
  shard_.closed.push_back(context_.key);
}

void Group::CloseIfEmpty(Step& step, const Cause& cause) {
  if (closed()) return;
  if (context_.roster.AnyLive()) return;
  if (cause.kind == CauseKind::kLeft) {
    // If all members have left, no member will come back.
    bool all_left = true;
    for (const auto& [name, member] : context_.roster.members()) {
      all_left = all_left && member->state == MemberState::kLeft;
    }
    if (all_left) {
      Cause closed_by = cause;
      closed_by.kind = CauseKind::kClosed;
      closed_by.detail = "the last member left";
      Close(step, closed_by);
      return;
    }
  }
  // Lost members may come back in the next generation; the name and its generation stay for a
  // while.
  ScheduleLinger(step.now());
}

void Group::ScheduleLinger(Instant now) {
  shard_.timers.Cancel(linger_timer_);
  const absl::Duration linger = std::max(context_.spec.data_expiration, context_.spec.lease);
  linger_timer_ = shard_.timers.Schedule(now + linger, [this](Step& step) {
    linger_timer_ = 0;
    if (context_.roster.AnyLive()) return;
    Close(step, CauseOf(CauseKind::kClosed, "no live member for too long", step.now()));
  });
}

// --- Calls.

void Group::Answer(Step& step, Call& call, LeaveCall& body) {
  Member* member = Admit(step, call, "leave", AllowedIn::kAnyGeneration);
  if (member == nullptr) return;
  const Cause cause = CauseOf(CauseKind::kLeft, *member, body.reason, step.now());
  step.Answer(call.id, EmptyReply{});
  EndIncarnation(step, *member, cause);
  if (state_ == GroupState::kForming || member->state == MemberState::kCandidate) {
    events_.Notify(step, EventKind::kLeft, member, cause);
    MemberGoneFromProposal(step, *member, cause);
    EraseMember(step, *member);
    context_.roster.Remove(*member, cause);
    FillSlots(step);
  } else {
    member->state = MemberState::kLeft;
    context_.roster.Fence(*member, cause);
    WriteMember(step, *member);
    events_.Notify(step, EventKind::kLeft, member, cause);
    OnGoneWhileActive(step, *member, cause);
    MemberGoneFromProposal(step, *member, cause);
  }
  CloseIfEmpty(step, cause);
}

void Group::Answer(Step& step, Call& call, KeepAliveCall& body) {
  Member* member = Admit(step, call, "keep alive", AllowedIn::kAnyGeneration);
  if (member == nullptr) return;
  if (body.progress != member->progress) {
    member->progress = body.progress;
    member->progress_at = step.now();
  }
  member->progress_operation = body.progress_operation;
  if (body.tensors.has_value()) {
    member->tensors = std::move(body.tensors);
    member->tensors_at = step.now();
  }
  KeepAliveReply reply;
  reply.lease = context_.spec.lease;
  reply.generation = context_.generation;
  reply.state = state_;
  if (state_ != GroupState::kActive) reply.cause = cause_;
  if (proposal_.has_value() && proposal_->needed.Contains(member->rank) &&
      !proposal_->acknowledged.Contains(member->rank)) {
    reply.proposal = proposal_->view;
  }
  step.Answer(call.id, std::move(reply));
}

void Group::Answer(Step& step, Call& call, AttachCall& body) {
  Member* member = context_.roster.BySession(call.caller.session);
  if (member == nullptr) {
    step.Answer(call.id, EmptyReply{});
    return;
  }
  if (!body.closed) {
    RenewLease(step, *member);
    member->streams.push_back(body.stream);
    shard_.timers.Cancel(member->disconnect_timer);
    step.Answer(call.id, EmptyReply{});
    return;
  }
  step.Answer(call.id, EmptyReply{});
  auto it = std::find(member->streams.begin(), member->streams.end(), body.stream);
  if (it == member->streams.end()) return;
  member->streams.erase(it);
  if (!member->streams.empty() || !member->live()) return;
  member->attached_until = step.now();
  // The lease is the shorter limit from here on. Only this member's: very many streams may end at
  // once.
  if (const Instant lost_at = LostAt(*member); liveness_timer_ == 0 || lost_at < liveness_at_) {
    StartLivenessTimer(step.now(), lost_at);
  }
  if (!body.by_us) AwaitConnection(step, *member);
}

void Group::Answer(Step& step, Call& call, ReportErrorCall& body) {
  Member* member = Admit(step, call, "report error", AllowedIn::kActiveOrBroken);
  if (member == nullptr) return;
  Cause cause = CauseOf(CauseKind::kReported, *member, body.detail, step.now());
  if (!body.suspected.empty()) {
    absl::StrAppend(&cause.detail, " (suspects ", NameRanks(body.suspected).substr(0, 128), ")");
  }
  events_.Notify(step, EventKind::kErrorReported, member, cause);
  if (body.fatal && state_ == GroupState::kActive) Break(step, cause);
  ReportErrorReply reply;
  if (state_ == GroupState::kBroken) reply.first_cause = cause_;
  step.Answer(call.id, std::move(reply));
}

void Group::Answer(Step& step, Call& call, EvictCall& body) {
  Member* member = context_.roster.ByName(body.member);
  if (member == nullptr || !member->live()) {
    step.Fail(call.id, absl::NotFoundError(absl::StrCat("group ", context_.key.group,
                                                        " has no live member ", body.member)));
    return;
  }
  step.Answer(call.id, EvictReply{member->rank});
  Lose(step, *member, CauseOf(CauseKind::kEvicted, *member, body.reason, step.now()));
}

void Group::Answer(Step& step, Call& call, CloseGroupCall& body) {
  Cause cause = CauseOf(CauseKind::kClosed, body.reason, step.now());
  if (!call.caller.session.empty()) {
    Member* member = Admit(step, call, "close", AllowedIn::kAnyGeneration);
    if (member == nullptr) return;
    cause = CauseOf(CauseKind::kClosed, *member, body.reason, step.now());
  }
  step.Answer(call.id, EmptyReply{});
  Close(step, cause);
}

}  // namespace cohort::coordinator
