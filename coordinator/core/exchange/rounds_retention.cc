// The state that rounds leave: names and their watermarks, values until they are acknowledged, and
// journal rows.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/exchange/rounds.h"

namespace cohort::coordinator {
namespace {

// A value that comes from the journal has no ledger yet.
Payload Counted(const Payload& payload, const std::shared_ptr<ByteLedger>& ledger) {
  return payload.has_value() ? Payload(payload.bytes(), ledger, MemoryKind::kRounds) : Payload();
}

// The longest reason in a RoundNameRecord.
constexpr size_t kLongReason = 512;

std::string RowId(const std::string& name, int64_t number) {
  std::string id = name;
  id.push_back('\0');
  absl::StrAppendFormat(&id, "%020d", number);
  return id;
}

}  // namespace

Rounds::~Rounds() {
  for (auto& [text, name] : names_) {
    for (auto& [number, round] : name->rounds) {
      group_.shard.timers.Cancel(round.expiry);
      for (const Waiter& waiter : round.waiters) group_.shard.waits.Done(waiter.id);
    }
  }
}

int64_t Rounds::CostOfRound(const Round& round) const {
  // Bitmaps of up to 128 ranks lie inside of their objects. Four are in the round, two in its end.
  const int64_t ranks = round.participants.count();
  const int64_t bitmaps = group_.world_size > 128 ? 6 * BlockCost(group_.world_size / 8) : 0;
  const bool votes = round.kind == RoundKind::kVote;
  const bool values = round.kind != RoundKind::kBarrier && round.kind != RoundKind::kAgreeAlive && !votes;
  return NodeCost<std::pair<int64_t, Round>>() + BlockCost(sizeof(RoundEnd)) + bitmaps +
         SlotCost<std::pair<int64_t, Position>>() + CostOf(round.digest) +
         (votes ? BlockCost(ranks * sizeof(int64_t)) : 0) +
         (values ? BlockCost(ranks * sizeof(Payload)) : 0);
}

Rounds::Name* Rounds::FindOrAddName(Step& step, const std::string& text) {
  auto it = names_.find(text);
  if (it != names_.end()) {
    use_order_.splice(use_order_.end(), use_order_, it->second->use);
    return it->second.get();
  }
  if (static_cast<int64_t>(names_.size()) >= group_.shard.limits.max_round_names) {
    auto idle = std::find_if(use_order_.begin(), use_order_.end(),
                             [](const Name* name) {
                               return std::all_of(name->rounds.begin(), name->rounds.end(), [](const auto& entry) {
                                 return entry.second.ended && entry.second.receipt == 0;
                               });
                             });
    if (idle == use_order_.end()) return nullptr;
    DropName(step, **idle);
  }
  auto name = std::make_unique<Name>();
  name->name = text;
  name->charge =
      Charge(*group_.tally, MemoryKind::kRounds,
             NodeCost<std::pair<std::string, std::unique_ptr<Name>>>() + BlockCost(sizeof(Name)) +
                 NodeCost<Name*>() + 2 * CostOf(text) + BlockCost(kLongReason));
  name->use = use_order_.insert(use_order_.end(), name.get());
  return names_.emplace(text, std::move(name)).first->second.get();
}

void Rounds::DropName(Step& step, Name& name) {
  while (!name.rounds.empty()) Drop(step, name, name.rounds.begin()->first);
  step.Erase(group_.key, RecordKind::kRoundName, name.name);
  use_order_.erase(name.use);
  names_.erase(names_.find(name.name));
}

// A number has ended: the watermark moves up to below the lowest one that is still open.
void Rounds::Advance(Step& step, Name& name, const Round& round) {
  const int64_t from = name.ended_through;
  int64_t ended_through = std::max(from, round.number);
  for (const auto& [number, other] : name.rounds) {
    if (!other.ended) {
      ended_through = std::min(ended_through, number - 1);
      break;
    }
  }
  if (ended_through > from) {
    name.ended_through = ended_through;
    MarkLate(name, from);
  }
  WriteName(step, name);
}

void Rounds::KeepValues(Step& step, Name& name, Round& round) {
  if (round.receipt != 0) ExpireLater(step.now(), name, round);
  WriteRound(step, name, round);
}

void Rounds::ExpireLater(Instant now, Name& name, Round& round) {
  receipts_[round.receipt] = Position{&name, round.number};
  round.valued_at = now;
  round.expiry = group_.shard.timers.Schedule(
      now + group_.spec.data_expiration,
      [this, text = name.name, number = round.number](Step& s) { ValuesExpired(s, text, number); });
}

void Rounds::ValuesExpired(Step& step, const std::string& text, int64_t number) {
  auto found = names_.find(text);
  if (found == names_.end()) return;
  Name& name = *found->second;
  auto it = name.rounds.find(number);
  if (it == name.rounds.end()) return;
  Round& round = it->second;
  round.expiry = 0;
  if (!round.ended) {  // rooted, and some reader has not read it
    round.ended = true;
    name.last_kind = round.kind;
    name.last_outcome = RoundOutcome::kReleased;
    name.last_number = number;
    name.last_end.reset();
    const std::vector<Waiter> waiters = std::move(round.waiters);
    for (const Waiter& waiter : waiters) {
      Unpark(waiter.id);
      step.Answer(waiter.id, RoundReply{MakeEnd(step.now(), name, round, RoundOutcome::kTimedOut,
                                                "the value expired before all had read it"),
                                        false, Payload()});
    }
    round.waiters.clear();
    Advance(step, name, round);
  }
  Drop(step, name, number);
}

void Rounds::Drop(Step& step, Name& name, int64_t number) {
  auto it = name.rounds.find(number);
  if (it == name.rounds.end()) return;
  Round& round = it->second;
  group_.shard.timers.Cancel(round.expiry);
  if (round.receipt != 0) receipts_.erase(round.receipt);
  if (round.recorded) step.Erase(group_.key, RecordKind::kRoundEnd, RowId(name.name, number));
  name.rounds.erase(it);
}

void Rounds::AllAcknowledged(Step& step, Name& name, Round& round) {
  if (round.kind == RoundKind::kAllGather) {
    Drop(step, name, round.number);
    return;
  }
  // Members that get no values (a root, gather's other ranks) acknowledge nothing, and may not have
  // their answer yet.
  group_.shard.timers.Cancel(round.expiry);
  receipts_.erase(round.receipt);
  round.receipt = 0;
  round.values.clear();
  auto end = std::make_shared<RoundEnd>(*round.end);
  end->values.clear();
  end->receipt = 0;
  round.end = std::move(end);
  WriteRound(step, name, round);
}

bool Rounds::AllWereIn(const Round& round) const {
  if (round.end->outcome != RoundOutcome::kReleased) return false;
  if (!Rooted(round.kind)) return true;
  for (int rank : round.participants.Minus(round.read).ToVector()) {
    if (rank != round.root && group_.WhyGone(rank) == nullptr) return false;
  }
  return true;
}

// Called when a member arrives at `number`. It has its answers to all numbers before. Another
// member may still repeat the last number that it was in, but no earlier one.
void Rounds::DropEndedBefore(Step& step, Name& name, int64_t number) {
  std::vector<int64_t> passed;
  RankSet in_later_ones;
  for (auto it = name.rounds.rbegin(); it != name.rounds.rend(); ++it) {
    const Round& round = it->second;
    if (!round.ended || it->first >= number) continue;
    const bool unread = Rooted(round.kind) && round.receipt != 0;
    if (round.end->outcome != RoundOutcome::kReleased) {
      if (it->first <= name.ended_through) passed.push_back(it->first);
    } else if (!unread && round.participants.Minus(in_later_ones).empty()) {
      passed.push_back(it->first);
    } else if (AllWereIn(round)) {
      for (int rank : round.participants.ToVector()) in_later_ones.Add(rank);
    }
  }
  for (int64_t old : passed) Drop(step, name, old);
}

void Rounds::Acknowledge(Step& step, int rank, int64_t receipt) {
  auto it = receipts_.find(receipt);
  if (it == receipts_.end()) return;
  Name& name = *it->second.name;
  const int64_t number = it->second.number;
  Round& round = name.rounds.at(number);
  round.unacknowledged.Remove(rank);
  if (round.ended) {
    if (round.unacknowledged.empty()) AllAcknowledged(step, name, round);
  } else {  // rooted: a rank that acknowledges has read, perhaps before a restart
    round.read.Add(rank);
    round.arrived.Add(rank);
    EndRootedIfRead(step, name, round);
  }
}

void Rounds::Clear(Step& step) {
  for (auto& [text, name] : names_) {
    for (auto& [number, round] : name->rounds) group_.shard.timers.Cancel(round.expiry);
  }
  names_.clear();
  use_order_.clear();
  receipts_.clear();
  kept_ends_.clear();
  step.EraseAll(group_.key, RecordKind::kRoundName);
  step.EraseAll(group_.key, RecordKind::kRoundEnd);
}

void Rounds::Expire(Step& step, absl::Duration older_than, int64_t& count, int64_t& bytes) {
  std::vector<Position> old;
  for (auto& [text, name] : names_) {
    for (auto& [number, round] : name->rounds) {
      if (round.receipt != 0 && step.now() - round.valued_at >= older_than) old.push_back({name.get(), number});
    }
  }
  for (const Position& position : old) {
    Round& round = position.name->rounds.at(position.number);
    ++count;
    for (const Payload& value : round.values) bytes += value.size();
    if (round.end != nullptr) {
      for (const Payload& value : round.end->values) bytes += value.size();
    }
    group_.shard.timers.Cancel(round.expiry);
    ValuesExpired(step, position.name->name, position.number);
  }
}

void Rounds::WriteName(Step& step, const Name& name) {
  if (!step.keeps_records()) return;
  RoundNameRecord record;
  record.generation = group_.generation;
  record.kind = name.last_kind;
  record.name = name.name;
  record.ended_through = name.ended_through;
  // A later number may have ended while an earlier one is open: how it ended is not how this one
  // did.
  const bool is_last = name.last_number == name.ended_through;
  record.last_outcome = is_last ? name.last_outcome : RoundOutcome::kTimedOut;
  record.last_reason = is_last ? name.last_reason : "";
  record.last_released = name.last_released;
  WriteLate(name, record);
  step.Write(group_.key, RecordKind::kRoundName, name.name, std::move(record));
}

void Rounds::WriteRound(Step& step, const Name& name, Round& round) {
  if (!step.keeps_records()) return;
  round.recorded = true;
  RoundEndRecord record;
  record.generation = group_.generation;
  record.kind = round.kind;
  record.name = name.name;
  record.number = round.number;
  record.root = round.root;
  record.ended = round.ended;
  record.participants = round.participants.ToRanges();
  record.values = round.ended && round.end != nullptr && !Rooted(round.kind) ? round.end->values
                                                                             : round.values;
  record.receipt = round.receipt;
  if (round.end != nullptr) {
    record.vote = round.end->vote;
    record.dissenting = round.end->dissenting.ToRanges();
    record.alive = round.end->alive.ToRanges();
  }
  step.Write(group_.key, RecordKind::kRoundEnd, RowId(name.name, round.number), std::move(record));
}

void Rounds::Restore(Instant, const RoundNameRecord& record) {
  Effects none;
  none.wants_records = false;
  Step step(absl::InfinitePast(), none);
  Name* name = FindOrAddName(step, record.name);
  if (name == nullptr) return;
  name->ended_through = record.ended_through;
  name->last_number = record.ended_through;
  name->last_kind = record.kind;
  name->last_outcome = record.last_outcome;
  name->last_reason = record.last_reason;
  name->last_released = record.last_released;
  RestoreLate(*name, record);
}

void Rounds::Restore(Instant now, const RoundEndRecord& record) {
  Effects none;
  none.wants_records = false;
  Step step(now, none);
  Name* name = FindOrAddName(step, record.name);
  if (name == nullptr) return;
  Round& round = name->rounds[record.number];
  round.kind = record.kind;
  round.number = record.number;
  round.root = record.root;
  round.opener = record.root >= 0 ? record.root : 0;
  round.participants = RankSet::FromRanges(record.participants);
  round.first_at = round.last_at = now;
  round.charge = Charge(*group_.tally, MemoryKind::kRounds, CostOfRound(round));
  round.receipt = record.receipt;
  round.recorded = true;
  round.ended = record.ended;
  auto end = MakeEnd(now, *name, round, RoundOutcome::kReleased, "");
  end->receipt = record.receipt;
  end->vote = record.vote;
  end->dissenting = RankSet::FromRanges(record.dissenting);
  end->alive = RankSet::FromRanges(record.alive);
  std::vector<Payload> values;
  for (const Payload& value : record.values) values.push_back(Counted(value, group_.ledger));
  if (Rooted(record.kind)) {
    round.values = std::move(values);
    round.has_root = true;
    round.arrived.Add(record.root);
    round.first_rank = round.last_rank = record.root;
    round.unacknowledged = round.participants;
    round.unacknowledged.Remove(record.root);
    if (round.ended) {
      round.read = round.unacknowledged;
      round.arrived = round.participants;
      round.unacknowledged.Clear();
    }
  } else {
    end->values = std::move(values);
    round.arrived = round.participants;
    if (record.kind == RoundKind::kAllGather) round.unacknowledged = round.participants;
    if (record.kind == RoundKind::kGather) round.unacknowledged.Add(record.root);
  }
  round.end = std::move(end);
  if (round.receipt != 0) ExpireLater(now, *name, round);
}

RankSet Rounds::WaitingRanks() const {
  RankSet ranks;
  for (const auto& [name, state] : names_) {
    for (const auto& [number, round] : state->rounds) {
      for (const Waiter& waiter : round.waiters) ranks.Add(waiter.rank);
    }
  }
  return ranks;
}

int64_t Rounds::open_count() const {
  int64_t open = 0;
  for (const auto& [text, name] : names_) {
    for (const auto& [number, round] : name->rounds) open += round.ended ? 0 : 1;
  }
  return open;
}

void Rounds::Describe(Instant now, std::vector<OpenWait>& waits) const {
  for (const auto& [text, name] : names_) {
    for (const auto& [number, round] : name->rounds) {
      if (round.ended || round.waiters.empty()) continue;
      OpenWait wait;
      wait.operation = Title(*name, round);
      wait.missing = Missing(now, round);
      wait.age = now - round.first_at;
      wait.remaining = round.deadline - now;
      waits.push_back(std::move(wait));
    }
  }
}

void Rounds::Explain(CallId id, ParkedCall& parked) const {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  const Round& round = it->second.name->rounds.at(it->second.number);
  parked.operation = Title(*it->second.name, round);
  for (const Waiter& waiter : round.waiters) {
    if (waiter.id == id) parked.rank = waiter.rank;
  }
  parked.waits_on = Missing(absl::InfinitePast(), round).missing;
}

}  // namespace cohort::coordinator
