#include "coordinator/core/testing/simulated_world.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kTraceLines = 200;
// The parts that distinguish this call from others of its kind.
std::string Detail(const Call& call) {
  if (const auto* send = std::get_if<SendCall>(&call.body)) {
    return absl::StrCat(" to ", send->destination, " tag ", send->tag, " value ",
                        send->value.bytes);
  }
  if (const auto* receive = std::get_if<ReceiveCall>(&call.body)) {
    return absl::StrCat(" from ", receive->source.value_or(-1), " tag ", receive->tag);
  }
  if (const auto* push = std::get_if<QueuePushCall>(&call.body)) return " " + push->value;
  if (const auto* enter = std::get_if<EnterRoundCall>(&call.body)) {
    return absl::StrCat(" ", RoundKindName(enter->kind), " ", enter->name, " #", enter->number);
  }
  if (const auto* join = std::get_if<JoinCall>(&call.body)) {
    return absl::StrCat(" ", join->member, " incarnation ", join->incarnation % 1000);
  }
  return "";
}

// How late a timer of the service may run.
constexpr absl::Duration kTimerLag = absl::Milliseconds(5);

}  // namespace

const char* CallName(const Call& call) {
  static constexpr const char* kNames[] = {
      "create_group", "join",        "leave",          "keep_alive",   "get_group",
      "list_groups",  "watch_group", "attach",         "propose_view", "ack_view",
      "report_error", "close_group", "enter_round",    "cancel_round", "send",
      "receive",      "expire",      "stats",          "put_blob",     "get_blob",
      "put",          "get",         "range",          "delete",       "add",
      "append",       "queue_push",  "queue_pop",      "watch_keys",   "publish_ids",
      "fetch_ids",    "report_init", "who_is_missing", "dump_waits",   "evict"};
  static_assert(std::size(kNames) == std::variant_size_v<CallBody::variant>, "one name for each call");
  return kNames[call.body.index()];
}

SimulatedWorld::SimulatedWorld(const Options& options)
    : options_(options),
      random_(options.seed),
      now_(absl::UnixEpoch() + absl::Hours(1)),
      accounts_(std::make_shared<TenantAccounts>(std::make_shared<MemoryAccount>())) {
  Start();
}

SimulatedWorld::~SimulatedWorld() = default;

void SimulatedWorld::After(absl::Duration delay, std::function<void()> action) {
  events_.push_back(Event{now_ + delay, ++last_order_, std::move(action)});
  std::push_heap(events_.begin(), events_.end());
}

bool SimulatedWorld::RunOne() {
  if (events_.empty() || !failure_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ = std::max(now_, event.at);
  event.action();
  return failure_.empty();
}

absl::Duration SimulatedWorld::Delay() {
  if (random_.Chance(faults_.slow)) {
    return random_.Between(absl::Milliseconds(10), absl::Seconds(2));
  }
  return random_.Between(absl::Microseconds(50), absl::Milliseconds(3));
}

// --- Callers.

int64_t SimulatedWorld::Send(Call call, Done done) {
  const int64_t attempt = ++last_attempt_;
  attempts_[attempt] = std::move(done);
  const auto shared = std::make_shared<const Call>(std::move(call));
  if (random_.Chance(faults_.loss)) {
    BreakAttempt(attempt, random_.Between(absl::Milliseconds(20), absl::Seconds(1)));
    return attempt;
  }
  const int64_t boot = boot_;
  const absl::Duration delay = Delay();
  After(delay, [this, shared, attempt, boot] {
    // A connection does not outlive the process it led to.
    if (boot != boot_ || core_ == nullptr) {
      BreakAttempt(attempt, Delay());
    } else {
      Arrive(shared, attempt, nullptr);
    }
  });
  if (random_.Chance(faults_.duplicate)) {
    After(delay + random_.Between(absl::ZeroDuration(), absl::Seconds(2)), [this, shared, boot] {
      if (boot == boot_ && core_ != nullptr) Arrive(shared, 0, nullptr);
    });
  }
  return attempt;
}

void SimulatedWorld::Abandon(int64_t attempt) {
  if (attempts_.erase(attempt) == 0) return;
  for (const auto& [id, waiting] : outstanding_) {
    if (waiting.attempt == attempt) {
      CancelLater(id, random_.Between(absl::ZeroDuration(), absl::Milliseconds(300)));
      return;
    }
  }
}

void SimulatedWorld::Ask(Call call, Done done) {
  if (core_ == nullptr) {
    done(nullptr);
    return;
  }
  Arrive(std::make_shared<const Call>(std::move(call)), 0, std::move(done));
}

void SimulatedWorld::BreakAttempt(int64_t attempt, absl::Duration after) {
  After(after, [this, attempt] {
    auto it = attempts_.find(attempt);
    if (it == attempts_.end()) return;
    const Done done = std::move(it->second);
    attempts_.erase(it);
    done(nullptr);
  });
}

void SimulatedWorld::CancelLater(CallId id, absl::Duration after) {
  After(after, [this, id] {
    auto it = outstanding_.find(id);
    if (it == outstanding_.end() || core_ == nullptr) return;
    if (tracing()) Trace(absl::StrCat("cancel call ", id));
    deadlines_.erase({it->second.deadline, id});
    outstanding_.erase(it);
    Input(nullptr, [&](Effects& effects) { core_->Cancel(now_, id, effects); });
  });
}

// --- The coordinator.

void SimulatedWorld::Arrive(std::shared_ptr<const Call> call, int64_t attempt, Done direct) {
  const CallId id = ++last_id_;
  const bool undisturbed = direct != nullptr;
  outstanding_[id] = Outstanding{call, attempt, std::move(direct), now_ + call->wait};
  deadlines_.insert({now_ + call->wait, id});
  Call copy = *call;
  copy.id = id;
  if (std::holds_alternative<JoinCall>(copy.body)) copy.entropy = random_.Id();
  if (tracing() && !undisturbed) {
    Trace(absl::StrCat("call ", id, " ", CallName(copy), " group ", copy.caller.key.group,
                       " generation ", copy.caller.generation, " session ",
                       copy.caller.session.low % 1000, Detail(copy), " acknowledges ",
                       absl::StrJoin(copy.caller.acknowledged, ","),
                       attempt == 0 ? " (a copy)" : ""));
  }
  Input(call.get(), [&](Effects& effects) { core_->Handle(now_, std::move(copy), effects); });
  if (undisturbed || outstanding_.count(id) == 0) return;
  if (attempt == 0 || attempts_.count(attempt) == 0) {
    CancelLater(id, random_.Between(absl::ZeroDuration(), absl::Seconds(1)));
  } else if (random_.Chance(faults_.connection_break)) {
    const absl::Duration after = random_.Between(absl::ZeroDuration(), absl::Seconds(2));
    // The two ends notice in any order: the repeat may come before the cancellation.
    BreakAttempt(attempt, after);
    CancelLater(id, after + random_.Between(absl::ZeroDuration(), absl::Milliseconds(500)));
  }
}

template <typename F>
void SimulatedWorld::Input(const Call* call, F input) {
  ++steps_;
  Effects effects;
  effects.wants_records = options_.durable;
  input(effects);

  StepView view;
  view.now = now_;
  view.call = call;
  std::vector<Answer> answers;
  answers.reserve(effects.replies.size());
  for (Reply& reply : effects.replies) {
    auto it = outstanding_.find(reply.id);
    if (it == outstanding_.end()) {
      Fail(
          absl::StrCat("call ", reply.id, " is answered, but it was answered or cancelled before"));
      return;
    }
    deadlines_.erase({it->second.deadline, reply.id});
    answers.push_back(Answer{std::move(it->second), std::move(reply)});
    outstanding_.erase(it);
  }
  for (const Answer& answer : answers)
    view.replies.emplace_back(answer.to.call.get(), &answer.reply);
  if (on_step != nullptr) on_step(view);
  if (options_.check_each_step || steps_ % 64 == 0) CheckMachine();
  ScheduleTick();

  if (!options_.durable) {
    if (!effects.records.empty()) Fail("records were made without a durable journal");
    Release(std::move(answers));
  } else if (!effects.records.empty() || (!answers.empty() && !withheld_.empty())) {
    journal_.Append(std::move(effects.records));
    withheld_.push_back(std::move(answers));
    BeginCommit();
  } else {
    Release(std::move(answers));
  }
}

void SimulatedWorld::CheckMachine() {
  if (!failure_.empty()) return;
  const int64_t parked = core_->Stats().waiter_count;
  if (parked != static_cast<int64_t>(outstanding_.size())) {
    Fail(absl::StrCat(outstanding_.size(), " calls have no answer, but ", parked, " are parked"));
  }
  if (!deadlines_.empty() && deadlines_.begin()->first + kTimerLag < now_) {
    const CallId id = deadlines_.begin()->second;
    Fail(absl::StrCat("call ", id, " (", CallName(*outstanding_.at(id).call),
                      ") is parked beyond its wait by ",
                      absl::FormatDuration(now_ - deadlines_.begin()->first)));
  }
}

void SimulatedWorld::ScheduleTick() {
  const Instant next = core_->NextTick();
  if (next >= tick_at_) return;
  tick_at_ = next;
  const int64_t boot = boot_;
  const absl::Duration lag = random_.Between(absl::ZeroDuration(), kTimerLag);
  After(std::max(next - now_, absl::ZeroDuration()) + lag, [this, boot, next] {
    if (boot != boot_ || core_ == nullptr || tick_at_ != next) return;
    tick_at_ = absl::InfiniteFuture();
    Input(nullptr, [&](Effects& effects) { core_->Tick(now_, effects); });
    if (core_->NextTick() <= now_) Fail("NextTick is not in the future after a tick");
  });
}

// --- The journal.

void SimulatedWorld::BeginCommit() {
  if (committing_ != 0 || withheld_.empty()) return;
  committing_ = withheld_.size();
  const int64_t boot = boot_;
  After(random_.Between(absl::Microseconds(200), absl::Milliseconds(8)), [this, boot] {
    if (boot != boot_ || core_ == nullptr) return;
    journal_.Commit(committing_);
    std::vector<Answer> durable;
    for (; committing_ > 0; --committing_) {
      for (Answer& answer : withheld_.front()) durable.push_back(std::move(answer));
      withheld_.pop_front();
    }
    Release(std::move(durable));
    BeginCommit();
  });
}

void SimulatedWorld::Release(std::vector<Answer> answers) {
  for (Answer& answer : answers) {
    if (!failure_.empty()) return;
    if (on_release != nullptr) on_release(*answer.to.call, answer.reply);
    if (answer.to.direct != nullptr) {
      answer.to.direct(&answer.reply);
      continue;
    }
    const int64_t attempt = answer.to.attempt;
    if (attempts_.count(attempt) == 0) continue;
    if (random_.Chance(faults_.loss)) {
      BreakAttempt(attempt, random_.Between(absl::Milliseconds(20), absl::Seconds(1)));
      continue;
    }
    // The values of an answer count until it is sent, so an answer on its way must not hold them.
    After(Delay(), [this, attempt, reply = std::make_shared<const Reply>(std::move(answer.reply))] {
      auto it = attempts_.find(attempt);
      if (it == attempts_.end()) return;
      const Done done = std::move(it->second);
      attempts_.erase(it);
      done(reply.get());
    });
  }
}

void SimulatedWorld::Start() {
  ++boot_;
  core_ = std::make_unique<Core>(options_.limits, boot_, accounts_);
  std::vector<Record> rows = journal_.Rows();
  random_.Shuffle(rows);
  core_->Restore(now_, rows);
  tick_at_ = absl::InfiniteFuture();
  ScheduleTick();
  if (tracing()) Trace(absl::StrCat("boot ", boot_, " with ", rows.size(), " rows"));
  if (on_start != nullptr) on_start();
}

void SimulatedWorld::Crash(absl::Duration down) {
  if (core_ == nullptr) return;
  if (tracing())
    Trace(
        absl::StrCat("the coordinator dies; ", journal_.pending_steps(), " steps are not durable"));
  // The batch under way may have reached the disk; its answers did not reach any member.
  if (committing_ != 0 && random_.Chance(0.5)) journal_.Commit(committing_);
  journal_.DropPending();
  committing_ = 0;
  std::vector<Answer> lost;
  for (std::vector<Answer>& step : withheld_) {
    for (Answer& answer : step) lost.push_back(std::move(answer));
  }
  withheld_.clear();
  std::vector<Done> direct;
  const auto cut = [&](Outstanding& waiting) {
    if (waiting.attempt != 0) BreakAttempt(waiting.attempt, Delay());
    if (waiting.direct != nullptr) direct.push_back(std::move(waiting.direct));
  };
  for (Answer& answer : lost) cut(answer.to);
  for (auto& [id, waiting] : outstanding_) cut(waiting);
  outstanding_.clear();
  deadlines_.clear();
  core_.reset();
  for (const Done& done : direct) done(nullptr);
  After(down, [this] { Start(); });
}

void SimulatedWorld::Stop(absl::Duration down) {
  if (core_ == nullptr) return;
  Input(nullptr, [&](Effects& effects) { core_->SetDraining(now_, true, effects); });
  Input(nullptr, [&](Effects& effects) { core_->ReleaseAll(now_, effects); });
  if (!outstanding_.empty()) {
    Fail(absl::StrCat(outstanding_.size(), " parked calls have no answer after ReleaseAll"));
  }
  journal_.Commit(journal_.pending_steps());
  std::vector<Answer> durable;
  for (std::vector<Answer>& step : withheld_) {
    for (Answer& answer : step) durable.push_back(std::move(answer));
  }
  withheld_.clear();
  committing_ = 0;
  Release(std::move(durable));
  Crash(down);
}

// --- Failures.

void SimulatedWorld::Fail(std::string what) {
  if (!failure_.empty()) return;
  failure_ =
      absl::StrCat("seed ", options_.seed, ", step ", steps_, ", at ",
                   absl::FormatDuration(now_ - (absl::UnixEpoch() + absl::Hours(1))), ": ", what);
}

void SimulatedWorld::Trace(std::string line) {
  trace_.push_back(
      absl::StrCat(absl::FormatDuration(now_ - (absl::UnixEpoch() + absl::Hours(1))), " ", line));
  if (trace_.size() > kTraceLines) trace_.pop_front();
}

std::string SimulatedWorld::TraceText() const { return absl::StrJoin(trace_, "\n"); }

}  // namespace cohort::coordinator
