// Broadcast and scatter: the root brings the values, and each other rank reads when it calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/exchange/rounds.h"

namespace cohort::coordinator {

void Rounds::EnterRooted(Step& step, CallId id, int rank, absl::Duration wait,
                         const EnterRoundCall& call, std::vector<Payload> values, Name& name,
                         Round& round) {
  round.arrived.Add(rank);
  if (rank == round.root) {
    if (!round.has_root) {
      round.has_root = true;
      round.values = std::move(values);
      round.receipt = group_.shard.next_receipt();
      ExpireLater(step.now(), name, round);
      round.end = MakeEnd(step.now(), name, round, RoundOutcome::kReleased, "");
      std::const_pointer_cast<RoundEnd>(round.end)->receipt = round.receipt;
      round.unacknowledged = round.participants;
      round.unacknowledged.Remove(round.root);
      WriteRound(step, name, round);
      const std::vector<Waiter> waiters = std::move(round.waiters);
      round.waiters.clear();
      for (const Waiter& waiter : waiters) {
        Unpark(waiter.id);
        EndWait(step, waiter.rank);
        Serve(step, name, round, waiter.id, waiter.rank);
      }
    }
    const bool all_read = round.read.count() == round.participants.count() - 1;
    if (call.wait_consumed && !all_read) {
      Park(step, name, round, id, rank, wait);
    } else {
      // The root needs no receipt: it has nothing to free.
      auto end = std::make_shared<RoundEnd>(*round.end);
      end->receipt = 0;
      step.Answer(id, RoundReply{std::move(end), false, Payload()});
    }
    EndRootedIfRead(step, name, round);
    return;
  }
  if (round.has_root) {
    Serve(step, name, round, id, rank);
    EndRootedIfRead(step, name, round);
    return;
  }
  if (const Cause* cause = group_.WhyGone(round.root); cause != nullptr) {
    round.waiters.push_back({id, rank});
    AbortRound(step, name, round, *cause);
    return;
  }
  EndOlderCall(step, round, rank);
  Park(step, name, round, id, rank, wait);
}

void Rounds::Serve(Step& step, Name&, Round& round, CallId id, int rank) {
  round.read.Add(rank);
  RoundReply reply;
  reply.end = round.end;
  reply.own = round.kind == RoundKind::kBroadcast ? round.values[0]
                                                  : round.values[round.participants.CountBelow(rank)];
  step.Answer(id, std::move(reply));
}

void Rounds::EndRootedIfRead(Step& step, Name& name, Round& round) {
  if (round.ended || !round.has_root) return;
  for (int rank : round.participants.Minus(round.read).ToVector()) {
    if (rank != round.root && group_.WhyGone(rank) == nullptr) return;
  }
  round.ended = true;
  const std::vector<Waiter> waiters = std::move(round.waiters);
  round.waiters.clear();
  for (const Waiter& waiter : waiters) {  // the root, if it waits
    Unpark(waiter.id);
    EndWait(step, waiter.rank);
    auto end = std::make_shared<RoundEnd>(*round.end);
    end->receipt = 0;
    step.Answer(waiter.id, RoundReply{std::move(end), false, Payload()});
  }
  name.last_kind = round.kind;
  name.last_outcome = RoundOutcome::kReleased;
  name.last_reason.clear();
  name.last_number = round.number;
  name.last_end.reset();
  Advance(step, name, round);
  if (round.unacknowledged.empty()) AllAcknowledged(step, name, round);
}

}  // namespace cohort::coordinator
