// Entering and releasing rounds. Other files of this class: rounds_numbers.cc (the next number of
// each rank), rounds_broadcast_scatter.cc (broadcast and scatter), rounds_abort.cc (ends without a
// release), rounds_retention.cc (ended rounds that are kept).
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/exchange/rounds.h"

namespace cohort::coordinator {
namespace {

// `root` in proto/cohort/v1/messaging.proto.
constexpr int kNoNumber = std::numeric_limits<int32_t>::min();

std::string TitleOf(const EnterRoundCall& call) {
  return absl::StrCat(RoundKindName(call.kind), " \"", call.name, "\"");
}

void CountVotes(VoteOp op, const std::vector<int64_t>& votes, const RankSet& participants,
                RoundEnd& end) {
  const std::vector<int>& ranks = participants.ToVector();
  uint64_t sum = 0;  // wraps; signed overflow would be undefined
  bool all = true, any = false;
  for (size_t i = 0; i < votes.size(); ++i) {
    sum += static_cast<uint64_t>(votes[i]);
    all = all && votes[i] != 0;
    any = any || votes[i] != 0;
    if (votes[i] != votes[0]) end.dissenting.Add(ranks[i]);
  }
  switch (op) {
    case VoteOp::kAnd:
      end.vote = all ? 1 : 0;
      break;
    case VoteOp::kOr:
      end.vote = any ? 1 : 0;
      break;
    case VoteOp::kSum:
      end.vote = static_cast<int64_t>(sum);
      break;
    case VoteOp::kMin:
      end.vote = *std::min_element(votes.begin(), votes.end());
      break;
    case VoteOp::kMax:
      end.vote = *std::max_element(votes.begin(), votes.end());
      break;
    case VoteOp::kEqual:
      end.vote = end.dissenting.empty() ? 1 : 0;
      break;
  }
  if (op != VoteOp::kEqual) end.dissenting.Clear();
}

}  // namespace

std::string Rounds::Title(const Name& name, const Round& round) const {
  return absl::StrCat(RoundKindName(round.kind), " \"", name.name, "\" #", round.number);
}

MissingReport Rounds::Missing(Instant now, const Round& round) const {
  RankSet expected = round.participants;
  RankSet arrived = round.arrived;
  if (Rooted(round.kind)) {
    // Before the root has called, all wait for the root; afterwards, for the ranks that have not
    // read.
    if (!round.has_root) {
      expected.Clear();
      expected.Add(round.root);
      arrived.Clear();
    } else {
      arrived = round.read;
      arrived.Add(round.root);
    }
  }
  MissingReport report = group_.roster.Missing(now, expected, arrived);
  if (round.first_rank >= 0) {
    report.first_rank = round.first_rank;
    report.last_rank = round.last_rank;
    report.since_first = now - round.first_at;
    report.skew = round.last_at - round.first_at;
  }
  return report;
}

std::shared_ptr<RoundEnd> Rounds::MakeEnd(Instant now, const Name& name, const Round& round,
                                          RoundOutcome outcome, std::string reason) const {
  auto end = std::make_shared<RoundEnd>();
  end->kind = round.kind;
  end->name = name.name;
  end->outcome = outcome;
  end->number = round.number;
  end->next_number = round.number + 1;
  end->reason = std::move(reason);
  end->skew = round.last_at - round.first_at;
  // Nothing is missing in a mismatch: it does not wait for the others.
  if (outcome != RoundOutcome::kReleased && outcome != RoundOutcome::kMismatch) {
    end->missing = Missing(now, round);
  }
  return end;
}

std::string Rounds::Mismatch(const Round& round, const EnterRoundCall& call, int rank,
                             const RankSet& participants) const {
  std::string theirs, ours;
  if (call.kind != round.kind) {
    theirs = RoundKindName(round.kind);
    ours = RoundKindName(call.kind);
  } else if (participants != round.participants) {
    theirs = absl::StrCat("participants ", round.participants.ToString());
    ours = absl::StrCat("participants ", participants.ToString());
  } else if (call.root != round.root) {
    theirs = absl::StrCat("root ", round.root);
    ours = absl::StrCat("root ", call.root);
  } else if (call.digest != round.digest) {
    theirs = absl::StrCat("digest ", absl::BytesToHexString(round.digest));
    ours = absl::StrCat("digest ", absl::BytesToHexString(call.digest));
  } else if (call.kind == RoundKind::kVote && call.op != round.op) {
    theirs = absl::StrCat("vote op ", static_cast<int>(round.op));
    ours = absl::StrCat("vote op ", static_cast<int>(call.op));
  } else {
    return "";
  }
  const Member* opener = group_.roster.ByRank(round.opener);
  const Member* caller = group_.roster.ByRank(rank);
  return absl::StrCat("rank ", round.opener, opener ? absl::StrCat(" (", opener->name, ")") : "",
                      " brings ", theirs.substr(0, 300), ", rank ", rank,
                      caller ? absl::StrCat(" (", caller->name, ")") : "", " brings ",
                      ours.substr(0, 300));
}

void Rounds::Open(Step& step, const EnterRoundCall& call, int rank, RankSet participants,
                  Round& round) {
  round.kind = call.kind;
  round.participants = std::move(participants);
  round.digest = call.digest;
  round.opener = rank;
  round.root = call.root;
  round.op = call.op;
  round.first_at = round.last_at = step.now();
  round.deadline = absl::InfiniteFuture();
  round.charge = Charge(*group_.tally, MemoryKind::kRounds, CostOfRound(round));
}

absl::Status Rounds::CheckParticipants(const EnterRoundCall& call, int rank,
                                       const RankSet& participants) const {
  if (participants.last() >= group_.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(TitleOf(call), ": participant ", participants.last(),
                     " is not below the world size ", group_.world_size));
  }
  if (!participants.Contains(rank)) {
    return absl::InvalidArgumentError(absl::StrCat(TitleOf(call), ": the caller, rank ", rank,
                                                   ", is not among participants ",
                                                   participants.ToString().substr(0, 256)));
  }
  return absl::OkStatus();
}

absl::Status Rounds::CheckRoot(const EnterRoundCall& call, int rank, const RankSet& participants,
                               size_t value_count) const {
  const bool has_root = Rooted(call.kind) || call.kind == RoundKind::kGather;
  if (has_root && !participants.Contains(call.root)) {
    return absl::InvalidArgumentError(
        call.root == kNoNumber
            ? absl::StrCat(TitleOf(call), ": the root is no number of 32 bits")
            : absl::StrCat(TitleOf(call), ": root ", call.root, " is not among participants ",
                           participants.ToString().substr(0, 256)));
  }
  if (call.kind == RoundKind::kScatter && call.root == rank &&
      static_cast<int>(value_count) != participants.count()) {
    return absl::InvalidArgumentError(absl::StrCat(TitleOf(call), ": the root brings ", value_count,
                                                   " values for ", participants.count(),
                                                   " participants"));
  }
  return absl::OkStatus();
}

void Rounds::Enter(Step& step, CallId id, Member& member, absl::Duration wait,
                   const EnterRoundCall& call, std::vector<Payload> values) {
  const int rank = member.rank;
  RankSet participants = call.participants.empty() ? RankSet::All(group_.world_size)
                                                   : RankSet::FromRanges(call.participants);
  absl::Status valid = CheckParticipants(call, rank, participants);
  if (!valid.ok()) participants = RankSet::All(group_.world_size);
  Name* name = FindOrAddName(step, call.name);
  if (name == nullptr) {
    step.Fail(id, absl::ResourceExhaustedError(absl::StrCat(
                      "group ", group_.key.group, ": all names are in use; max_round_names is ",
                      group_.shard.limits.max_round_names)));
    return;
  }
  const int64_t number = call.number != 0 ? call.number : NextFor(*name, rank);
  member.Begin(RoundKindName(call.kind), call.name, number, step.now());
  if (valid.ok()) valid = CheckRoot(call, rank, participants, values.size());
  if (valid.ok() && !call.refusal.empty()) valid = absl::InvalidArgumentError(call.refusal);
  if (!valid.ok()) {
    EnterWrong(step, id, member, call, participants, *name, number, valid.message());
    return;
  }

  Round* const open = FindOrOpen(step, id, call, rank, participants, *name, number);
  if (open == nullptr) return;
  Round& round = *open;
  if (std::string reason = Mismatch(round, call, rank, participants); !reason.empty()) {
    round.waiters.push_back({id, rank});
    End(step, *name, round, RoundOutcome::kMismatch, std::move(reason));
    return;
  }
  if (!round.arrived.Contains(rank)) {
    if (round.first_rank < 0) round.first_rank = rank;
    round.last_rank = rank;
    round.last_at = step.now();
  }
  // Having come here, the member has whatever earlier numbers gave it.
  DropEndedBefore(step, *name, number);
  if (Rooted(call.kind)) {
    EnterRooted(step, id, rank, wait, call, std::move(values), *name, round);
  } else {
    EnterSymmetric(step, id, rank, wait, call, std::move(values), *name, round);
  }
}

Rounds::Round* Rounds::FindOrOpen(Step& step, CallId id, const EnterRoundCall& call, int rank,
                                  const RankSet& participants, Name& name, int64_t number) {
  auto it = name.rounds.find(number);
  if (it == name.rounds.end()) {
    if (number <= name.ended_through || number == name.last_released) {
      AnswerEnded(step, id, name, number, rank);
      return nullptr;
    }
    if (static_cast<int64_t>(name.rounds.size()) >= group_.shard.limits.max_open_rounds) {
      step.Fail(id,
                absl::ResourceExhaustedError(absl::StrCat(TitleOf(call), ": ", name.rounds.size(),
                                                          " numbers are open; max_open_rounds is ",
                                                          group_.shard.limits.max_open_rounds)));
      return nullptr;
    }
    it = name.rounds.try_emplace(number).first;
    it->second.number = number;
    Open(step, call, rank, participants, it->second);
  }
  Round& round = it->second;
  if (!round.ended) return &round;
  // Only members of the round get its values. The digest is not compared: a restart forgets it.
  if (round.end->outcome == RoundOutcome::kMismatch) {
    AnswerEnded(step, id, name, number, rank);
    return nullptr;
  }
  if (call.kind == round.kind && call.root == round.root && participants == round.participants) {
    AnswerEnded(step, id, name, number, rank);
    return nullptr;
  }
  auto end = MakeEnd(step.now(), name, round, RoundOutcome::kMismatch,
                     Mismatch(round, call, rank, participants));
  end->late = !round.arrived.Contains(rank);
  end->next_number = std::max(number, name.ended_through) + 1;
  round.arrived.Add(rank);
  CatchUp(step, name, rank, end->next_number);
  step.Answer(id, RoundReply{std::move(end), false, Payload()});
  return nullptr;
}

void Rounds::EnterSymmetric(Step& step, CallId id, int rank, absl::Duration wait,
                            const EnterRoundCall& call, std::vector<Payload> values, Name& name,
                            Round& round) {
  EndOlderCall(step, round, rank);
  for (const auto& [gone, cause] : group_.gone) {
    if (call.kind == RoundKind::kAgreeAlive || !round.participants.Contains(gone)) continue;
    round.waiters.push_back({id, rank});
    AbortRound(step, name, round, cause);
    return;
  }
  const int index = round.participants.CountBelow(rank);
  if (!values.empty()) {
    if (round.values.empty()) round.values.resize(round.participants.count());
    round.values[index] = std::move(values[0]);
  }
  if (call.kind == RoundKind::kVote) {
    if (round.votes.empty()) round.votes.resize(round.participants.count());
    round.votes[index] = call.vote;
  }
  round.arrived.Add(rank);
  Park(step, name, round, id, rank, wait);
  MaybeRelease(step, name, round);
}

void Rounds::Park(Step& step, Name& name, Round& round, CallId id, int rank, absl::Duration wait) {
  const Instant deadline = step.now() + wait;
  round.waiters.push_back({id, rank});
  round.deadline = std::min(round.deadline, deadline);
  parked_[id] = Position{&name, round.number};
  group_.shard.waits.Park(id, this, *group_.tally, step.now(), deadline);
}

CallId Rounds::UnparkRank(Round& round, int rank) {
  const auto waiter = std::find_if(round.waiters.begin(), round.waiters.end(),
                                   [rank](const Waiter& each) { return each.rank == rank; });
  if (waiter == round.waiters.end()) return 0;
  const CallId id = waiter->id;
  round.waiters.erase(waiter);
  Unpark(id);
  return id;
}

void Rounds::EndOlderCall(Step& step, Round& round, int rank) {
  if (const CallId older = UnparkRank(round, rank); older != 0) {
    step.Fail(older, absl::CancelledError("a repeat of this call replaced it"));
  }
}

void Rounds::Unpark(CallId id) {
  parked_.erase(id);
  group_.shard.waits.Done(id);
}

void Rounds::EndWait(Step& step, int rank) {
  if (group_.spec.progress_timeout == absl::ZeroDuration()) return;
  if (Member* member = group_.roster.ByRank(rank); member != nullptr)
    member->progress_at = step.now();
}

bool Rounds::Complete(const Round& round) const {
  if (round.kind != RoundKind::kAgreeAlive)
    return round.arrived.count() == round.participants.count();
  // An agreement is complete when every absent participant is dead.
  for (int rank : round.participants.Minus(round.arrived).ToVector()) {
    const Member* member = group_.roster.ByRank(rank);
    if (member != nullptr && member->live()) return false;
  }
  return true;
}

void Rounds::MaybeRelease(Step& step, Name& name, Round& round) {
  if (Complete(round)) End(step, name, round, RoundOutcome::kReleased, "");
}

void Rounds::End(Step& step, Name& name, Round& round, RoundOutcome outcome, std::string reason) {
  std::shared_ptr<RoundEnd> end = MakeEnd(step.now(), name, round, outcome, std::move(reason));
  const bool released = outcome == RoundOutcome::kReleased;
  if (released && round.kind == RoundKind::kVote) {
    CountVotes(round.op, round.votes, round.participants, *end);
  }
  if (round.kind == RoundKind::kAgreeAlive) end->alive = round.arrived;
  const bool has_values =
      released && (round.kind == RoundKind::kAllGather || round.kind == RoundKind::kGather);
  if (has_values) {
    end->values = std::move(round.values);
    end->receipt = round.receipt = group_.shard.next_receipt();
  }
  if (released && round.kind == RoundKind::kBarrier) ++released_barriers_;

  const std::vector<Waiter> waiters = std::move(round.waiters);
  round.waiters.clear();
  round.values.clear();
  round.ended = true;
  round.end = end;
  if (!released) KeepEnd(end);
  for (const Waiter& waiter : waiters) {
    Unpark(waiter.id);
    EndWait(step, waiter.rank);
    round.arrived.Add(
        waiter.rank);  // a member that disagrees had not arrived, and gets the error too
    RoundReply reply;
    reply.end = end;
    reply.with_values =
        has_values && (round.kind == RoundKind::kAllGather || waiter.rank == round.root);
    step.Answer(waiter.id, std::move(reply));
  }

  name.last_kind = round.kind;
  name.last_outcome = outcome;
  name.last_reason = end->reason;
  name.last_number = round.number;
  name.last_end = released ? nullptr : end;
  const bool of_all = round.participants.count() == group_.world_size;
  const bool watermark = released && round.kind == RoundKind::kBarrier && of_all;
  if (watermark) name.last_released = round.number;
  if (has_values) {
    if (round.kind == RoundKind::kAllGather) {
      round.unacknowledged = round.participants;
    } else {
      round.unacknowledged.Add(round.root);
    }
  }
  Advance(step, name, round);
  // A barrier of all members leaves only its watermark. Other rounds stay, to repeat their answer
  // to a member whose reply was lost.
  if (released && !watermark) {
    KeepValues(step, name, round);
  } else if (round.number <= name.ended_through) {
    Drop(step, name, round.number);
  }
  // Else the watermark waits for an earlier number that is open, and only this round knows that it
  // has ended.
}

}  // namespace cohort::coordinator
