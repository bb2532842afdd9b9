// Ends of rounds without a release: cancelled, timed out, aborted, or without a member.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/exchange/rounds.h"

namespace cohort::coordinator {

int64_t Rounds::Cancel(Step& step, const std::string& text, int64_t number, const std::string& reason) {
  auto found = names_.find(text);
  if (found == names_.end()) return 0;
  Name& name = *found->second;
  for (auto& [open, round] : name.rounds) {
    if (round.ended || (number != 0 && open != number) || Rooted(round.kind)) continue;
    const int64_t cancelled = open;
    End(step, name, round, RoundOutcome::kCancelled, reason);
    return cancelled;
  }
  return 0;
}

void Rounds::Forget(Step& step, CallId id) {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  Name& name = *it->second.name;
  const int64_t number = it->second.number;
  parked_.erase(it);
  Round& round = name.rounds.at(number);
  for (size_t i = 0; i < round.waiters.size(); ++i) {
    if (round.waiters[i].id != id) continue;
    const int rank = round.waiters[i].rank;
    round.waiters.erase(round.waiters.begin() + i);
    EndWait(step, rank);
    // A root that waits for its readers has already given its value.
    if (Rooted(round.kind) && rank == round.root) return;
    round.arrived.Remove(rank);
    if (!Rooted(round.kind) && !round.values.empty()) {
      round.values[round.participants.CountBelow(rank)].reset();
    }
    break;
  }
  if (round.arrived.empty() && !round.has_root) Drop(step, name, number);
}

void Rounds::TimeOut(Step& step, CallId id) {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  Name& name = *it->second.name;
  Round& round = name.rounds.at(it->second.number);
  if (!Rooted(round.kind)) {
    End(step, name, round, RoundOutcome::kTimedOut, "");
    return;
  }
  auto end = MakeEnd(step.now(), name, round, RoundOutcome::kTimedOut, "");
  for (const Waiter& waiter : round.waiters) {
    // The reader may call the same number again; the root's value stays.
    if (waiter.id == id && waiter.rank != round.root) end->next_number = round.number;
  }
  Forget(step, id);
  step.Answer(id, RoundReply{std::move(end), false, Payload()});
}

void Rounds::AbortWaiter(Step& step, const Name& name, Round& round, int rank, const Cause& cause) {
  if (const CallId id = UnparkRank(round, rank); id != 0) {
    group_.Abort(step, id, Title(name, round), cause);
  }
}

void Rounds::MemberGone(Step& step, int rank, const Cause& cause) {
  std::vector<Position> open;
  for (auto& [text, name] : names_) {
    for (auto& [number, round] : name->rounds) {
      if (!round.participants.Contains(rank)) continue;
      round.unacknowledged.Remove(rank);
      open.push_back({name.get(), number});
    }
  }
  for (const Position& position : open) {
    auto it = position.name->rounds.find(position.number);
    if (it == position.name->rounds.end()) continue;
    Round& round = it->second;
    if (round.ended) {
      if (round.receipt != 0 && round.unacknowledged.empty())
        AllAcknowledged(step, *position.name, round);
    } else if (round.kind == RoundKind::kAgreeAlive) {
      AbortWaiter(step, *position.name, round, rank, cause);
      round.arrived.Remove(rank);
      if (round.arrived.empty()) {
        Drop(step, *position.name, position.number);
      } else {
        MaybeRelease(step, *position.name, round);
      }
    } else if (Rooted(round.kind)) {
      AbortWaiter(step, *position.name, round, rank, cause);
      if (round.has_root) {
        EndRootedIfRead(step, *position.name, round);
      } else if (rank == round.root) {
        AbortRound(step, *position.name, round, cause);
      } else {
        round.arrived.Remove(rank);
        if (round.arrived.empty()) Drop(step, *position.name, position.number);
      }
    } else {
      AbortRound(step, *position.name, round, cause);
    }
  }
}

void Rounds::Break(Step& step, const Cause& cause, bool keep_agreements) {
  std::vector<Position> all;
  for (auto& [text, name] : names_) {
    for (auto& [number, round] : name->rounds) all.push_back({name.get(), number});
  }
  for (const Position& position : all) {
    Round& round = position.name->rounds.at(position.number);
    if (round.kind == RoundKind::kAgreeAlive && keep_agreements) {
      if (!round.ended) MaybeRelease(step, *position.name, round);
    } else {
      AbortRound(step, *position.name, round, cause);
    }
  }
}

void Rounds::AbortRound(Step& step, Name& name, Round& round, const Cause& cause) {
  const std::string title = Title(name, round);
  const absl::Status status = group_.Aborted(title, cause);
  const auto context = group_.Explain(title, cause);
  for (const Waiter& waiter : round.waiters) {
    Unpark(waiter.id);
    step.Fail(waiter.id, status, context);
  }
  Drop(step, name, round.number);
}

void Rounds::EnterWrong(Step& step, CallId id, const Member& member, const EnterRoundCall& call,
                        const RankSet& participants, Name& name, int64_t number,
                        absl::string_view why) {
  EnterRoundCall in_group = call;
  if (call.root < 0 || call.root >= group_.world_size) in_group.root = member.rank;
  Round* const open =
      FindOrOpen(step, id, in_group, member.rank, participants, name, number);
  if (open == nullptr) return;
  open->waiters.push_back({id, member.rank});
  End(step, name, *open, RoundOutcome::kMismatch,
      absl::StrCat("rank ", member.rank, " (", member.name, "): ", why));
}

}  // namespace cohort::coordinator
