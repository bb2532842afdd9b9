// The position of each rank under a name: its next number, and the ends of numbers that ended
// without it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/exchange/rounds.h"

namespace cohort::coordinator {
namespace {

RankSet Both(const RankSet& a, const RankSet& b) { return a.Minus(a.Minus(b)); }

}  // namespace

int64_t Rounds::FirstUnreported(const Name& name, int rank) {
  for (const auto& [number, late] : name.late) {
    if (late.ranks.Contains(rank)) return number;
  }
  return name.ended_through + 1;
}

int64_t Rounds::NextFor(const Name& name, int rank) {
  int64_t next = FirstUnreported(name, rank);
  if (next <= name.ended_through) return next;
  for (auto it = name.rounds.find(next); it != name.rounds.end() && it->first == next; ++it) {
    if (!it->second.arrived.Contains(rank)) break;
    ++next;
  }
  return next;
}

void Rounds::MarkLate(Name& name, int64_t from) {
  const int64_t to = name.ended_through;
  auto newest = name.rounds.find(to);
  const bool all_came = to == from + 1 && newest != name.rounds.end() &&
                        newest->second.arrived.count() == group_.world_size;
  if (all_came && name.late.empty()) return;

  RankSet behind = RankSet::All(group_.world_size);
  for (const auto& [number, late] : name.late) behind = behind.Minus(late.ranks);
  // From the newest number down: a rank that was in a later number is past the earlier ones.
  for (auto it = name.rounds.upper_bound(to); it != name.rounds.begin();) {
    const auto& [number, round] = *--it;
    if (number <= from) break;
    RankSet moved = Both(behind, round.arrived);
    behind = behind.Minus(moved);
    for (auto late = name.late.begin(); late != name.late.end() && late->first <= number;) {
      for (int rank : Both(late->second.ranks, round.arrived).ToVector()) {
        late->second.ranks.Remove(rank);
        moved.Add(rank);
      }
      late = late->second.ranks.empty() ? name.late.erase(late) : std::next(late);
    }
    if (number < to && !moved.empty()) AddLate(name, number + 1, moved);
  }
  if (!behind.empty()) AddLate(name, from + 1, behind);
}

void Rounds::AddLate(Name& name, int64_t number, const RankSet& ranks) {
  Name::Late& late = name.late[number];
  for (int rank : ranks.ToVector()) late.ranks.Add(rank);
  auto it = name.rounds.find(number);
  if (it == name.rounds.end() || !it->second.ended) return;
  const Round& round = it->second;
  // A rooted round whose values expire has no end.
  late.released = round.end == nullptr || round.end->outcome == RoundOutcome::kReleased;
  if (!late.released) late.end = round.end;
}

void Rounds::CatchUp(Step& step, Name& name, int rank, int64_t next) {
  auto it = name.late.find(FirstUnreported(name, rank));
  if (it == name.late.end()) return;
  it->second.ranks.Remove(rank);
  if (it->second.ranks.empty()) name.late.erase(it);
  if (next <= name.ended_through) {
    Name::Late& late = name.late[next];
    late.ranks.Add(rank);
    late.end = KeptEnd(name, next);
  }
  WriteName(step, name);
}

std::shared_ptr<const RoundEnd> Rounds::KeptEnd(const Name& name, int64_t number) const {
  for (const std::shared_ptr<const RoundEnd>& end : kept_ends_) {
    if (end->number == number && end->name == name.name) return end;
  }
  return nullptr;
}

int64_t Rounds::NextAfter(const Name& name, const RoundEnd& end) const {
  const bool in_step =
      end.outcome == RoundOutcome::kMismatch && KeptEnd(name, end.number + 1) != nullptr;
  return in_step ? end.number + 1 : name.ended_through + 1;
}

void Rounds::KeepEnd(const std::shared_ptr<const RoundEnd>& end) {
  kept_ends_.push_back(end);
  if (kept_ends_.size() > kEndsKept) kept_ends_.pop_front();
}

std::string Rounds::LateReason(const RoundEnd& end, int rank) {
  if (end.outcome != RoundOutcome::kTimedOut) return end.reason;
  return absl::StrCat("it timed out before rank ", rank, " came",
                      end.missing.expected_count > 0 ? "" : "; the missing ranks are not kept");
}

std::shared_ptr<const RoundEnd> Rounds::EndOf(const Name& name, int64_t number, int rank) const {
  const int64_t first_unreported = FirstUnreported(name, rank);
  std::shared_ptr<const RoundEnd> kept;
  if (number == name.last_number) kept = name.last_end.lock();
  if (auto it = name.late.find(number); kept == nullptr && it != name.late.end()) {
    kept = it->second.end.lock();
  }
  auto end = kept != nullptr ? std::make_shared<RoundEnd>(*kept) : std::make_shared<RoundEnd>();
  end->next_number = name.ended_through + 1;
  end->late = number >= first_unreported;
  const bool released = number == name.last_released;
  if (kept == nullptr || released) {
    const bool last = number == name.last_number;
    end->kind = released ? RoundKind::kBarrier : name.last_kind;
    end->name = name.name;
    end->number = number;
    end->outcome = released ? RoundOutcome::kReleased
                   : last   ? name.last_outcome
                            : RoundOutcome::kTimedOut;
    if (released) {
      end->late = false;
    } else if (last) {
      end->reason = name.last_reason;
    } else {
      end->reason =
          absl::StrCat("it ended before rank ", rank, " came; the name is at #", end->next_number);
      return end;
    }
  }
  end->next_number = NextAfter(name, *end);
  if (end->late) {
    end->reason = LateReason(*end, rank);
  } else if (end->outcome == RoundOutcome::kTimedOut && end->missing.expected_count == 0 &&
             end->reason.empty()) {
    // An answer without a report and a reason would mean that no rank was missing.
    end->reason = "it timed out; the missing ranks are not kept";
  }
  return end;
}

void Rounds::AnswerEnded(Step& step, CallId id, Name& name, int64_t number, int rank) {
  auto it = name.rounds.find(number);
  if (it != name.rounds.end()) {
    Round& round = it->second;
    if (round.end->outcome != RoundOutcome::kReleased) {
      std::shared_ptr<const RoundEnd> end = round.end;
      if (round.arrived.Add(rank)) {
        auto late = std::make_shared<RoundEnd>(*end);
        late->late = true;
        late->reason = LateReason(*end, rank);
        end = std::move(late);
      }
      step.Answer(id, RoundReply{std::move(end), false, Payload()});
      return;
    }
    const bool reads = round.kind == RoundKind::kGather ? rank == round.root
                                                        : Rooted(round.kind) && rank != round.root;
    if (reads && round.receipt == 0) {
      step.Fail(id, absl::DataLossError(absl::StrCat(
                        Title(name, round), " was released and its values were acknowledged")));
      return;
    }
    RoundReply reply;
    reply.end = round.end;
    reply.with_values = round.kind == RoundKind::kAllGather ||
                        (round.kind == RoundKind::kGather && rank == round.root);
    if (Rooted(round.kind) && rank != round.root) {
      reply.own = round.kind == RoundKind::kBroadcast
                      ? round.values[0]
                      : round.values[round.participants.CountBelow(rank)];
    }
    step.Answer(id, std::move(reply));
    return;
  }
  const bool last = number == name.last_number;
  const auto late = name.late.find(number);
  const bool released = (last && name.last_outcome == RoundOutcome::kReleased) ||
                        (late != name.late.end() && late->second.released);
  const bool lost = number != name.last_released && released;
  int64_t next = name.ended_through + 1;
  if (lost) {
    step.Fail(id, absl::DataLossError(absl::StrCat(
                      RoundKindName(name.last_kind), " \"", name.name, "\" #", number,
                      " was released; its values expired or were acknowledged",
                      last ? "" : absl::StrCat("; the name is at #", next))));
  } else {
    std::shared_ptr<const RoundEnd> end = EndOf(name, number, rank);
    next = end->next_number;
    step.Answer(id, RoundReply{std::move(end), false, Payload()});
  }
  CatchUp(step, name, rank, next);
}

void Rounds::WriteLate(const Name& name, RoundNameRecord& record) {
  for (const auto& [number, late] : name.late) {
    RoundNameRecord::Late& row = record.late.emplace_back();
    row.number = number;
    row.ranks = late.ranks.ToRanges();
    if (late.released) row.outcome = RoundOutcome::kReleased;
    if (const auto end = late.end.lock(); end != nullptr) {
      row.outcome = end->outcome;
      row.kind = end->kind;
      row.reason = end->reason;
      row.arrived = end->missing.arrived;
      row.missing = end->missing.missing;
    }
  }
}

void Rounds::RestoreLate(Name& name, const RoundNameRecord& record) {
  for (const RoundNameRecord::Late& row : record.late) {
    Name::Late& late = name.late[row.number];
    for (int rank : RankSet::FromRanges(row.ranks).ToVector()) {
      if (rank < group_.world_size) late.ranks.Add(rank);
    }
    late.released = row.outcome == RoundOutcome::kReleased;
    if (!row.outcome.has_value() || late.released) continue;
    auto end = std::make_shared<RoundEnd>();
    end->kind = row.kind;
    end->name = name.name;
    end->number = row.number;
    end->next_number = row.number + 1;
    end->outcome = *row.outcome;
    end->reason = row.reason;
    end->missing.arrived = row.arrived;
    end->missing.missing = row.missing;
    end->missing.arrived_count = RankSet::FromRanges(row.arrived).count();
    end->missing.expected_count =
        end->missing.arrived_count + RankSet::FromRanges(row.missing).count();
    late.end = end;
    KeepEnd(end);
  }
}

}  // namespace cohort::coordinator
