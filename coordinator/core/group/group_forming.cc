// When a generation is complete, and the ranks that are missing until then.
//
// A member is confirmed (state ACTIVE while the group is FORMING) when its Join is parked here, or
// was answered as complete. Only the last confirmation completes the generation. A member that gets
// JOINED therefore knows that all others were present at that instant.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"

namespace cohort::coordinator {

int Group::CountWithoutRank() const {
  int without_rank = 0;
  for (const auto& [name, member] : context_.roster.members()) {
    if (member->rank < 0 && member->confirmed()) ++without_rank;
  }
  return without_rank;
}

RankSet Group::ConfirmedRanks() const {
  RankSet confirmed;
  for (const auto& [rank, member] : context_.roster.by_rank()) {
    if (member->confirmed()) confirmed.Add(rank);
  }
  return confirmed;
}

MissingReport Group::MissingRanks(Instant now) const {
  // Members that ask for no rank count into the first free rank slots.
  RankSet confirmed = ConfirmedRanks();
  int without_rank = CountWithoutRank();
  for (int rank = 0; rank < context_.roster.slot_count() && without_rank > 0; ++rank) {
    if (context_.roster.ByRank(rank) == nullptr && confirmed.Add(rank)) --without_rank;
  }
  MissingReport report =
      context_.roster.Missing(now, RankSet::All(context_.roster.slot_count()), confirmed);
  for (MissingMember& missing : report.details) {
    if (!missing.member.empty() || now == absl::InfinitePast()) continue;
    for (const RefusedJoin& refused : refused_joins_) {
      if (refused.rank != missing.rank) continue;
      missing.member = refused.member;
      missing.host = refused.host;
      missing.last_operation =
          absl::StrCat("join (refused: the group has ", refused.difference, ")");
      missing.last_heard = missing.last_operation_age = now - refused.at;
    }
  }
  // A join that times out is no longer in the WaitTable, but it counts as an arrival in its own
  // report.
  Instant first = absl::InfiniteFuture(), last = absl::InfinitePast();
  for (const auto& [id, name] : joins_) {
    const auto it = context_.roster.members().find(name);
    if (it == context_.roster.members().end() || !it->second->confirmed()) continue;
    const Member& member = *it->second;
    // A member that asks for no rank has none before the group is complete.
    const std::optional<int> rank =
        member.rank >= 0 ? std::optional<int>(member.rank) : std::nullopt;
    if (member.operation_at < first) {
      first = member.operation_at;
      report.first_rank = rank;
    }
    if (member.operation_at > last) {
      last = member.operation_at;
      report.last_rank = rank;
    }
  }
  if (first <= last && now != absl::InfinitePast()) {
    report.since_first = now - first;
    report.skew = last - first;
  }
  return report;
}

void Group::FillSlots(Step& step) {
  if (state_ != GroupState::kForming || !may_have_candidates_) return;
  int taken = 0;
  std::vector<Member*> candidates;
  for (const auto& [name, member] : context_.roster.members()) {
    if (member->state == MemberState::kCandidate) {
      candidates.push_back(member.get());
    } else {
      ++taken;
    }
  }
  may_have_candidates_ = !candidates.empty();
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Member* a, const Member* b) { return a->joined_at < b->joined_at; });
  for (Member* member : candidates) {
    if (taken++ >= context_.roster.slot_count()) break;
    member->state = member->join_call != 0 ? MemberState::kActive : MemberState::kJoining;
    member_infos_.reset();
    WriteMember(step, *member);
    events_.Notify(step, EventKind::kJoined, member, Cause{});
  }
  if (!candidates.empty()) MaybeComplete(step);
}

void Group::MaybeComplete(Step& step) {
  if (state_ != GroupState::kForming) return;
  const int slots = context_.roster.slot_count();
  // While FORMING, every confirmed member has a parked Join, so most joins need not count.
  const int enough = context_.spec.fixed() ? slots : std::min(slots, context_.spec.min_members);
  if (static_cast<int>(joins_.size()) < enough) return;
  const int present = ConfirmedRanks().count() + CountWithoutRank();
  if (present >= slots) {
    Complete(step);
    return;
  }
  if (context_.spec.fixed() || present < context_.spec.min_members) return;
  const Instant window_ends = last_arrival_ + context_.spec.join_window;
  if (step.now() >= window_ends) {
    Complete(step);
    return;
  }
  shard_.timers.Cancel(join_window_timer_);
  join_window_timer_ = shard_.timers.Schedule(window_ends, [this](Step& s) {
    join_window_timer_ = 0;
    MaybeComplete(s);
  });
}

void Group::Complete(Step& step) {
  shard_.timers.Cancel(join_window_timer_);
  std::vector<Member*> members;
  for (const auto& [name, member] : context_.roster.members()) members.push_back(member.get());
  // An elastic generation does not wait for members that have not come back.
  for (Member* member : members) {
    if (member->confirmed() || member->state == MemberState::kCandidate) continue;
    Cause cause = CauseOf(CauseKind::kViewChanged, *member, "it did not join again in time", step.now());
    EndIncarnation(step, *member, cause);
    EraseMember(step, *member);
    context_.roster.Remove(*member, cause);
  }
  // Members that ask for no rank take free rank slots in the order of their joins.
  std::vector<Member*> without_rank;
  for (const auto& [name, member] : context_.roster.members()) {
    if (member->rank < 0 && member->confirmed()) without_rank.push_back(member.get());
  }
  std::stable_sort(without_rank.begin(), without_rank.end(),
                   [](const Member* a, const Member* b) { return a->joined_at < b->joined_at; });
  int rank = 0;
  for (Member* member : without_rank) {
    while (context_.roster.ByRank(rank) != nullptr) ++rank;
    context_.roster.AssignRank(*member, rank);
  }
  // Ranks are dense, in the order of the rank slots.
  int next = 0;
  for (int slot = 0; slot < context_.roster.slot_count(); ++slot) {
    Member* member = context_.roster.ByRank(slot);
    if (member == nullptr) continue;
    if (slot != next) context_.roster.AssignRank(*member, next);
    ++next;
  }
  context_.roster.Resize(next);
  context_.world_size = next;
  state_ = GroupState::kActive;
  refused_joins_.clear();
  member_infos_.reset();
  events_.Notify(step, EventKind::kActive, nullptr, Cause{});
  WriteGroup(step);
  for (int slot = 0; slot < next; ++slot) {
    Member& member = *context_.roster.ByRank(slot);
    member.last_heard = step.now();
    member.progress_at = step.now();
    WriteMember(step, member);
    if (member.join_call != 0) AnswerJoin(step, member);
  }
  shard_.timers.Cancel(liveness_timer_);  // progress counts from now, perhaps by a shorter time
  ScheduleLiveness(step.now());
}

std::shared_ptr<const std::vector<MemberInfo>> Group::Members(Instant now) {
  if (member_infos_ == nullptr) {
    member_infos_ = std::make_shared<const std::vector<MemberInfo>>(context_.roster.Infos(now));
  }
  return member_infos_;
}

void Group::AnswerJoin(Step& step, Member& member) {
  JoinReply reply;
  reply.session = member.session;
  reply.rank = member.rank;
  reply.world_size = context_.world_size;
  reply.generation = context_.generation;
  reply.revision = events_.newest();
  reply.lease = context_.spec.lease;
  if (member.with_members) reply.members = Members(step.now());
  step.Answer(UnparkJoin(member), std::move(reply));
}

CallId Group::UnparkJoin(Member& member) {
  const CallId id = std::exchange(member.join_call, 0);
  joins_.erase(id);
  shard_.waits.Done(id);
  return id;
}

}  // namespace cohort::coordinator
