// The calls of a simulated member on its group and on the tenant's store.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/simulated_member.h"

namespace cohort::coordinator {
namespace {

// Keys are replaced by new ones, so that the history of each stays short enough to be checked.
constexpr absl::Duration kKeyLife = absl::Seconds(2);

}  // namespace

void SimulatedMember::EnterRound() {
  const std::string name = random_.Chance(0.05) ? "b" : "a";
  int64_t& next = next_number_[name];
  next = std::max<int64_t>(next, 1);
  RoundScript script = ScriptOf(name, next, world_size_);
  for (; !script.participants.Contains(rank_); script = ScriptOf(name, next, world_size_)) ++next;

  EnterRoundCall enter;
  enter.kind = script.kind;
  enter.name = name;
  enter.number = next;
  if (!script.all) enter.participants = script.participants.ToRanges();
  enter.root = script.root;
  enter.op = script.op;
  enter.vote = RoundVote(generation_, next, rank_);
  const auto value_of = [&](int rank) {
    return Value{RoundValue(plan_.group, generation_, name, next, rank), 0, true};
  };
  if (script.kind == RoundKind::kAllGather || script.kind == RoundKind::kGather ||
      (script.kind == RoundKind::kBroadcast && rank_ == script.root)) {
    enter.values = {value_of(rank_)};
  } else if (script.kind == RoundKind::kScatter && rank_ == script.root) {
    for (int rank : script.participants.ToVector()) enter.values.push_back(value_of(rank));
  }
  enter.wait_consumed = Rooted(script.kind) && rank_ == script.root && random_.Chance(0.2);
  absl::Duration wait = name == "b" ? absl::Milliseconds(200) : absl::Seconds(6);
  if (!calm_ && random_.Chance(0.05)) wait = absl::Milliseconds(100);
  Begin(kProgram, enter, wait,
        [this, name, number = next, generation = generation_](const Reply* reply) {
          if (!alive_) return;
          NextStep();
          if (reply == nullptr || generation != generation_) return;
          if (!reply->status.ok()) {
            if (!Over(*reply)) Unexpected(EnterRoundCall{}, *reply);
            return;
          }
          const auto& round = std::get<RoundReply>(reply->body);
          int64_t& at = next_number_[name];
          if (round.end->next_number > number) at = std::max(at, round.end->next_number);
          if (round.end->receipt != 0) receipts_.push_back(round.end->receipt);
          checker_.RoundEnded(plan_.group, generation, name, number, rank_, round);
        });
}

void SimulatedMember::CancelRound() {
  Begin(kProgram, CancelRoundCall{"a", 0, "for no reason"}, absl::ZeroDuration(),
        [this](const Reply* reply) {
          if (!alive_) return;
          NextStep();
          if (reply == nullptr || reply->status.ok()) return;
          if (!Over(*reply)) Unexpected(CancelRoundCall{}, *reply);
        });
}

void SimulatedMember::SendObject() {
  if (world_size_ < 2) return NextStep();
  SendCall send;
  send.destination = (rank_ + 1 + random_.Below(world_size_ - 1)) % world_size_;
  send.tag = random_.Chance(0.5) ? "t" : "";
  const int64_t count = ++sent_[{send.destination, send.tag}];
  send.value = Value{absl::StrCat(count), 0, true};
  send.wait_consumed = random_.Chance(0.1);
  if (random_.Chance(0.05)) send.expiration = absl::Milliseconds(700);
  const InvariantChecker::Stream stream{plan_.group, generation_, rank_, send.destination,
                                        send.tag};
  Begin(kProgram, std::move(send), absl::Seconds(1), [this, stream, count](const Reply* reply) {
    if (!alive_) return;
    NextStep();
    if (reply == nullptr) return;
    if (reply->status.ok()) {
      checker_.Sent(stream, count);
    } else if (stream.generation == generation_ && !Over(*reply)) {
      Unexpected(SendCall{}, *reply);
    }
  });
}

void SimulatedMember::ReceiveObject() {
  if (world_size_ < 2) return NextStep();
  ReceiveCall receive;
  receive.tag = random_.Chance(0.5) ? "t" : "";
  if (random_.Chance(0.5))
    receive.source = (rank_ + 1 + random_.Below(world_size_ - 1)) % world_size_;
  const absl::Duration wait = random_.Between(absl::ZeroDuration(), absl::Milliseconds(400));
  Begin(kProgram, receive, wait,
        [this, tag = receive.tag, generation = generation_, rank = rank_](const Reply* reply) {
          if (reply == nullptr) checker_.MayMiss(plan_.group, generation, rank, tag, 1);
          if (!alive_) return;
          NextStep();
          if (reply == nullptr || generation != generation_) return;
          if (absl::IsDataLoss(reply->status)) {
            int64_t lost = 0;
            const std::string text(reply->status.message());
            static_cast<void>(absl::SimpleAtoi(text.substr(0, text.find(' ')), &lost));
            checker_.MayMiss(plan_.group, generation, rank, tag, lost);
            return;
          }
          if (!reply->status.ok()) {
            if (!Over(*reply)) Unexpected(ReceiveCall{}, *reply);
            return;
          }
          const auto& object = std::get<ReceiveReply>(reply->body);
          if (object.timed_out) return;
          receipts_.push_back(object.receipt);
          int64_t count = 0;
          static_cast<void>(absl::SimpleAtoi(object.payload.bytes(), &count));
          checker_.Received({plan_.group, generation, object.source, rank, tag}, count,
                            object.sequence);
        });
}

void SimulatedMember::UniqueIds() {
  const std::string name = absl::StrCat("comm", random_.Below(3));
  const std::string id = absl::StrCat(plan_.group, "/", generation_, "/", name);
  const auto done = [this, id, name, generation = generation_](const Reply* reply) {
    if (!alive_) return;
    NextStep();
    if (reply == nullptr || generation != generation_) return;
    if (!reply->status.ok()) {
      if (absl::IsDataLoss(reply->status)) {
        // All have acknowledged, this one too.
        if (published_.count(name) == 0) Unexpected(FetchIdsCall{}, *reply);
      } else if (!Over(*reply)) {
        Unexpected(FetchIdsCall{}, *reply);
      }
      return;
    }
    const auto* fetched = std::get_if<FetchIdsReply>(&reply->body);
    published_.insert(name);
    if (fetched == nullptr || !fetched->found) return;
    receipts_.push_back(fetched->receipt);
    if (fetched->ids != std::vector<std::string>{id}) {
      world_.Fail(absl::StrCat(plan_.name, " fetches other unique ids than were published"));
    }
  };
  if (rank_ == 0 && random_.Chance(0.7)) {
    Begin(kProgram, PublishIdsCall{name, {id}}, absl::ZeroDuration(), done);
  } else {
    Begin(kProgram, FetchIdsCall{name}, absl::Milliseconds(200), done);
  }
}

void SimulatedMember::ReportError() {
  ReportErrorCall report;
  report.detail = "something";
  report.fatal = random_.Chance(0.3);
  Begin(kProgram, std::move(report), absl::ZeroDuration(), [this](const Reply* reply) {
    if (!alive_) return;
    NextStep();
    if (reply != nullptr && !reply->status.ok() && !Over(*reply)) {
      Unexpected(ReportErrorCall{}, *reply);
    }
  });
}

// --- The store: the group's with its session, and the tenant's without one.

void SimulatedMember::StoreStep() {
  const auto again = [this] {
    Later(random_.Between(absl::Milliseconds(50), absl::Milliseconds(500)),
          [this] { StoreStep(); });
  };
  if (!alive_ || finishing_) return;
  const bool uses_store = std::any_of(open_.begin(), open_.end(), [](const auto& open) {
    return open.second.slot == kTenantStore || open.second.slot == kGroupStore;
  });
  if (resting_ && !uses_store && abandoned_pops_.empty()) return;
  again();
  if (uses_store) return;
  // The call carries the abandoned pops.
  if (resting_) return Begin(kTenantStore, GetCall{{"-"}}, absl::ZeroDuration(), [](auto*) {});
  switch (random_.Below(5)) {
    case 0:
      return UseQueue();
    case 1:
      return UseKey(true);
    case 2:
      return UseGroupStore();
    default:
      return UseKey(false);
  }
}

void SimulatedMember::UseGroupStore() {
  if (!is_joined_) return;
  CallBody body;
  absl::Duration wait;
  switch (random_.Below(4)) {
    case 0: {
      PutCall put{absl::StrCat("of/", plan_.name), "value"};
      put.bind_to_session = true;
      if (random_.Chance(0.3)) put.expiration = absl::Seconds(1);
      body = put;
      break;
    }
    case 1:
      body = AddCall{"counter", 1};
      break;
    case 2:
      body = QueuePushCall{"queue", "value"};
      break;
    default:
      body = QueuePopCall{"queue"};
      wait = absl::Milliseconds(500);
      break;
  }
  Begin(kGroupStore, std::move(body), wait, [this, generation = generation_](const Reply* reply) {
    if (!alive_ || reply == nullptr || generation != generation_) return;
    if (!reply->status.ok()) {
      if (!Over(*reply)) Unexpected(QueuePopCall{}, *reply);
      return;
    }
    const auto* popped = std::get_if<QueuePopReply>(&reply->body);
    if (popped != nullptr && popped->found) receipts_.push_back(popped->receipt);
  });
}

void SimulatedMember::UseQueue() {
  const std::string value =
      absl::StrCat(plan_.group, "/", plan_.name, "/", incarnation_, "/", ++last_key_);
  if (random_.Chance(0.5)) {
    Begin(kTenantStore, QueuePushCall{"queue", value}, absl::ZeroDuration(),
          [this, value](const Reply* reply) {
            if (reply != nullptr && reply->status.ok()) checker_.Pushed(value);
          });
    return;
  }
  Begin(kTenantStore, QueuePopCall{"queue"},
        random_.Between(absl::ZeroDuration(), absl::Seconds(1)),
        [this, operation = last_key_ + 1](const Reply* reply) {
          if (reply == nullptr) {
            // The next call of a live process gives the item back.
            if (!alive_) checker_.PopsLost(1);
            return;
          }
          if (!reply->status.ok()) return;
          const auto& popped = std::get<QueuePopReply>(reply->body);
          if (!popped.found) return;
          store_receipts_.push_back(popped.receipt);
          checker_.Popped(popped.value.bytes(), Id128{static_cast<uint64_t>(incarnation_),
                                                      static_cast<uint64_t>(operation)});
        });
}

void SimulatedMember::UseKey(bool shared) {
  if (shared) {
    const int64_t delta = 1 + random_.Below(5);
    Begin(kTenantStore, AddCall{"counter", delta}, absl::ZeroDuration(),
          [this, delta](const Reply* reply) {
            if (reply == nullptr) {
              checker_.AddAbandoned(delta);
            } else if (reply->status.ok()) {
              checker_.Added(delta);
            }
          });
    return;
  }
  const int64_t epoch = absl::ToInt64Milliseconds(world_.now() - absl::UnixEpoch()) /
                        absl::ToInt64Milliseconds(kKeyLife);
  const std::string key = absl::StrCat("key", epoch, "/", random_.Below(3));
  KeyOperation seen;
  seen.invoked = world_.steps() * 2;
  const std::string value = absl::StrCat(random_.Below(1000));
  CallBody body;
  switch (random_.Below(5)) {
    case 0:
      seen.kind = KeyOperation::Kind::kPut;
      seen.value = value;
      body = PutCall{key, value};
      break;
    case 1: {
      seen.kind = KeyOperation::Kind::kCompareAndPut;
      seen.value = value;
      seen.expected_revision = key_revisions_[key];
      PutCall put{key, value};
      put.expected_revision = seen.expected_revision;
      body = put;
      break;
    }
    case 2:
      seen.kind = KeyOperation::Kind::kAdd;
      seen.delta = 1 + random_.Below(9);
      body = AddCall{key, seen.delta};
      break;
    case 3:
      seen.kind = KeyOperation::Kind::kDelete;
      body = DeleteCall{key};
      break;
    default:
      seen.kind = KeyOperation::Kind::kGet;
      body = GetCall{{key}};
      break;
  }
  Begin(kTenantStore, std::move(body), absl::ZeroDuration(),
        [this, key, seen](const Reply* reply) mutable {
          if (reply == nullptr || !reply->status.ok()) {
            checker_.KeyUnknown(key);
            return;
          }
          seen.responded = world_.steps() * 2 + 1;
          if (const auto* put = std::get_if<PutReply>(&reply->body)) {
            seen.done = put->written;
            seen.revision = put->written ? put->revision : 0;
            if (!put->written && put->current.has_value())
              key_revisions_[key] = put->current->revision;
          } else if (const auto* add = std::get_if<AddReply>(&reply->body)) {
            seen.done = true;
            seen.value = absl::StrCat(add->value);
            seen.revision = add->revision;
          } else if (const auto* gone = std::get_if<DeleteReply>(&reply->body)) {
            seen.done = gone->deleted_count == 1;
          } else if (const auto* get = std::get_if<GetReply>(&reply->body)) {
            seen.done = !get->values.empty();
            if (seen.done) {
              seen.value = get->values[0].value.bytes();
              seen.revision = get->values[0].revision;
            }
          }
          if (seen.revision != 0) key_revisions_[key] = seen.revision;
          checker_.KeySeen(key, seen);
        });
}

}  // namespace cohort::coordinator
