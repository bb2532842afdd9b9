#include "coordinator/service/engine/engine.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/time/clock.h"
#include "base/rpc/random_bits.h"
#include "base/status_macros.h"
#include "base/threads/notification.h"
#include "base/threads/thread_time.h"

namespace cohort::coordinator {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int kMaxShards = 256;
// The engine reports a sleep of the process that is at least this long.
constexpr absl::Duration kMinAsleepReported = absl::Seconds(1);

// It is processor time, because the clients with the first answers run meanwhile.
constexpr absl::Duration kLongDelivery = absl::Milliseconds(5);
// Answers between two looks at the time.
constexpr size_t kBetweenLooks = 64;

absl::Status DrainingError() {
  return absl::UnavailableError("draining: the coordinator is going away; try again");
}

}  // namespace

Engine::Engine(const EngineOptions& options, std::unique_ptr<Journal> journal, const Clock& clock,
               EngineObserver* observer)
    : journal_(std::move(journal)),
      durable_(!journal_->keeps_nothing()),
      clock_(clock, *options.suspend_clock, options.pause),
      look_interval_(options.pause / 2),
      observer_(observer),
      started_(clock_.Now()),
      server_incarnation_(options.server_incarnation != 0 ? options.server_incarnation
                                                          : absl::ToUnixMicros(absl::Now())) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(
    const EngineOptions& options, std::unique_ptr<Journal> journal, const Clock& clock,
    EngineObserver* observer, std::function<void(const absl::Status&)> on_failure) {
  if (options.shards < 1 || options.shards > kMaxShards) {
    return absl::InvalidArgumentError("the number of shards must be from 1 to 256");
  }
  std::unique_ptr<Engine> engine(new Engine(options, std::move(journal), clock, observer));
  {
    MutexLock lock(&engine->limits_mutex_);
    engine->limits_versions_.push_back(std::make_unique<const Limits>(options.limits));
    engine->limits_.store(engine->limits_versions_.back().get(), std::memory_order_release);
  }
  // Row by row: a journal that was filled up to the limit is read back within the same memory.
  const Instant now = engine->clock_.Now();
  Engine* const raw = engine.get();
  COHORT_ASSIGN_OR_RETURN(const int64_t boot,
                          engine->journal_->Open([&, raw](int64_t its_boot, Record row) {
                            if (raw->shards_.empty()) raw->MakeShards(options, its_boot);
                            Shard& shard = *raw->shards_[raw->ShardOf(row.key)];
                            MutexLock lock(&shard.mutex);
                            shard.core->RestoreRow(now, row);
                          }));
  if (engine->shards_.empty()) engine->MakeShards(options, boot);
  engine->boot_ = boot;
  for (const std::unique_ptr<Shard>& shard : engine->shards_) {
    MutexLock lock(&shard->mutex);
    shard->core->FinishRestore(now);
  }
  if (engine->durable_) {
    if (on_failure == nullptr) on_failure = [](const absl::Status&) {};
    engine->committer_ = std::make_unique<JournalCommitter>(
        *engine->journal_, engine->account(), observer,
        [raw](Answers answers) { raw->Deliver(std::move(answers)); }, std::move(on_failure));
    COHORT_RETURN_IF_ERROR(engine->committer_->status());
  }
  engine->alarm_ = std::make_unique<Alarm>(engine->clock_, [raw] { return raw->TickAll(); });
  COHORT_RETURN_IF_ERROR(engine->alarm_->Start());
  COHORT_RETURN_IF_ERROR(engine->late_deliveries_.Start());
  return engine;
}

Engine::~Engine() {
  // The alarm steps the shards and the committer delivers for them: stop in this order. Late
  // deliveries end last.
  delivers_at_once_.store(true);
  if (alarm_ != nullptr) alarm_->Stop();
  committer_.reset();
}

void Engine::MakeShards(const EngineOptions& options, int64_t boot) {
  for (int i = 0; i < options.shards; ++i) {
    auto shard = std::make_unique<Shard>();
    MutexLock lock(&shard->mutex);
    shard->core =
        std::make_unique<Core>(options.limits, boot, accounts_,
                               [receipts = RandomNumbers()]() mutable { return receipts.Next(); });
    shards_.push_back(std::move(shard));
  }
}

absl::Status Engine::CheckRoom(MemoryKind kind, int64_t bytes, Share share) const {
  return coordinator::CheckRoom(*accounts_->whole(), kind, bytes, limits(), share);
}

size_t Engine::ShardOf(const GroupKey& key) const {
  return shards_.size() == 1 ? 0 : absl::Hash<GroupKey>()(key) % shards_.size();
}

void Engine::Submit(Call call, ReplySink* sink, CallHandle* handle) {
  if (std::holds_alternative<ListGroupsCall>(call.body)) {
    ListGroups(std::move(call), sink);
    return;
  }
  if (std::holds_alternative<DumpWaitsCall>(call.body) && call.caller.key.group.empty()) {
    DumpWaits(std::move(call), sink);
    return;
  }
  // Joins turn these bits into the session that names the member.
  if (std::holds_alternative<JoinCall>(call.body)) call.entropy = RandomBits();
  const size_t index = ShardOf(call.caller.key);
  Shard& shard = *shards_[index];
  Answers answers;
  Effects effects;  // outlives the lock: freeing large values takes time
  Prepare(effects);
  effects.replies.reserve(2);  // the call's own, and that of a call that waited for it
  CallId id = 0;
  bool refused = false;
  {
    MutexLock lock(&shard.mutex);
    id = ++shard.last_id;
    ++shard.calls;
    if (handle != nullptr) *handle = CallHandle{index, id};
    refused = shard.closed || failed();
    if (!refused) {
      call.id = id;
      shard.core->Handle(Begin(shard), std::move(call), effects);
      Route(shard, id, sink, effects, &answers);
    }
  }
  if (refused) {
    Reject(id, sink);
    return;
  }
  Deliver(std::move(answers), effects);
}

bool Engine::Cancel(const CallHandle& handle) {
  if (handle.id == 0) return false;
  Shard& shard = *shards_[handle.shard];
  Answers answers;
  Effects effects;
  Prepare(effects);
  {
    MutexLock lock(&shard.mutex);
    if (shard.parked.erase(handle.id) == 0) return false;
    shard.core->Cancel(Begin(shard), handle.id, effects);
    Route(shard, 0, nullptr, effects, &answers);
  }
  Deliver(std::move(answers), effects);
  return true;
}

void Engine::EndCallsWithoutRights() {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    Answers answers;
    Effects effects;
    Prepare(effects);
    {
      MutexLock lock(&shard->mutex);
      std::vector<std::pair<CallId, Answer>> ended;
      for (const auto& [id, sink] : shard->parked) {
        absl::Status status = sink->CheckRights();
        if (status.ok()) continue;
        Answer answer;
        answer.sink = sink;
        answer.reply.status = std::move(status);
        ended.emplace_back(id, std::move(answer));
      }
      if (ended.empty()) continue;
      const Instant now = Begin(*shard);
      for (auto& [id, answer] : ended) {
        shard->parked.erase(id);
        shard->core->Cancel(now, id, effects);
      }
      Route(*shard, 0, nullptr, effects, &answers);
      for (auto& [id, answer] : ended) answers.push_back(std::move(answer));
    }
    Deliver(std::move(answers), effects);
  }
}

Instant Engine::Begin(Shard& shard) {
  const Instant now = clock_.Now();
  const int64_t asleep = clock_.asleep_nanos();
  if (const int64_t known = shard.asleep.load(); asleep != known) {
    shard.core->Resume(now, absl::Nanoseconds(asleep - known));
    shard.asleep.store(asleep);
  }
  return now;
}

void Engine::Route(Shard& shard, CallId own, ReplySink* own_sink, Effects& effects,
                   Answers* answers) {
  bool own_answered = own == 0;
  answers->reserve(effects.replies.size());
  for (Reply& reply : effects.replies) {
    if (reply.id == own && !own_answered) {
      own_answered = true;
      answers->push_back(Answer{own_sink, std::move(reply)});
      continue;
    }
    auto it = shard.parked.find(reply.id);
    if (it == shard.parked.end()) continue;
    answers->push_back(Answer{it->second, std::move(reply)});
    shard.parked.erase(it);
  }
  if (!own_answered) shard.parked.emplace(own, own_sink);
  UpdateTick(shard);
  if (!durable_) return;
  const bool behind = !answers->empty() && shard.last_step > committer_->durable();
  if (effects.records.empty() && !behind) return;
  const bool has_records = !effects.records.empty();
  const uint64_t step = committer_->Enqueue(std::move(effects.records), std::move(*answers));
  if (has_records) shard.last_step = step;
  answers->clear();
}

void Engine::Step(Shard& shard,
                  absl::FunctionRef<void(Core& core, Instant now, Effects& effects)> input) {
  Answers answers;
  Effects effects;
  Prepare(effects);
  {
    MutexLock lock(&shard.mutex);
    input(*shard.core, Begin(shard), effects);
    Route(shard, 0, nullptr, effects, &answers);
  }
  Deliver(std::move(answers), effects);
}

void Engine::Prepare(Effects& effects) const {
  effects.wants_records = durable_;
  effects.wants_log_events = observer_ != nullptr;
}

void Engine::Deliver(Answers answers, const Effects& effects) {
  for (const GroupLogEvent& event : effects.log_events)
    observer_->OnGroupEvent(event.key, event.event);
  Deliver(std::move(answers));
}

void Engine::Deliver(Answers answers) {
  if (answers.empty()) return;
  DeliveryContext context;
  context.now = clock_.Now();
  const RoundEnd* last = nullptr;
  absl::Duration begin;
  if (answers.size() >= kBetweenLooks) begin = ThreadTime();
  for (size_t i = 0; i < answers.size(); ++i) {
    if (i % kBetweenLooks == kBetweenLooks - 1 && !delivers_at_once_.load() &&
        ThreadTime() - begin > kLongDelivery) {
      context.batch.Flush();
      const auto rest = std::make_shared<Answers>(
          std::make_move_iterator(answers.begin() + static_cast<ptrdiff_t>(i)),
          std::make_move_iterator(answers.end()));
      return late_deliveries_.Post([this, rest] { Deliver(std::move(*rest)); });
    }
    Answer& answer = answers[i];
    if (observer_ != nullptr) {
      const RoundReply* round = std::get_if<RoundReply>(&answer.reply.body);
      // A batch has the replies of one round next to each other.
      if (round != nullptr && round->end.get() != last) {
        last = round->end.get();
        if (last != nullptr) observer_->OnRoundEnd(*last);
      }
    }
    answer.sink->OnReply(std::move(answer.reply), context);
  }
  context.batch.Flush();
}

void Engine::UpdateTick(Shard& shard) {
  const Instant next = shard.core->NextTick();
  shard.next_tick.store(next == absl::InfiniteFuture() ? kNever : absl::ToUnixNanos(next));
  alarm_->MoveTo(next);
}

Instant Engine::TickAll() {
  const Instant now = clock_.Now();
  // The clock has to be read this often.
  int64_t next = look_interval_ == absl::InfiniteDuration()
                     ? kNever
                     : absl::ToUnixNanos(now + look_interval_);
  ReportAsleep();
  const int64_t asleep = clock_.asleep_nanos();
  for (const std::unique_ptr<Shard>& shard : shards_) {
    if (shard->asleep.load() != asleep ||
        shard->next_tick.load() <= absl::ToUnixNanos(clock_.Now())) {
      Step(*shard, [](Core& core, Instant now, Effects& effects) { core.Tick(now, effects); });
    }
    next = std::min(next, shard->next_tick.load());
  }
  return next == kNever ? absl::InfiniteFuture() : absl::FromUnixNanos(next);
}

void Engine::ReportAsleep() {
  const absl::Duration asleep = clock_.asleep();
  if (observer_ == nullptr || asleep - reported_asleep_ < kMinAsleepReported) return;
  observer_->OnAsleep(asleep - reported_asleep_);
  reported_asleep_ = asleep;
}

void Engine::Reject(CallId id, ReplySink* sink) {
  DeliveryContext context;
  context.now = clock_.Now();
  sink->OnReply(
      Reply{id,
            failed() ? absl::UnavailableError("the journal could not be written") : DrainingError(),
            nullptr, EmptyReply{}},
      context);
  context.batch.Flush();
}

void Engine::Shutdown() {
  closed_.store(true);
  draining_.store(true);
  delivers_at_once_.store(true);
  for (const std::unique_ptr<Shard>& shard : shards_) {
    Answers answers;
    Effects effects;
    Prepare(effects);
    {
      MutexLock lock(&shard->mutex);
      shard->closed = true;
      shard->core->ReleaseAll(Begin(*shard), effects);
      Route(*shard, 0, nullptr, effects, &answers);
      // A call that the state machine does not answer gets an answer nevertheless.
      for (const auto& [id, sink] : shard->parked) {
        answers.push_back(Answer{sink, Reply{id, DrainingError(), nullptr, EmptyReply{}}});
      }
      shard->parked.clear();
    }
    Deliver(std::move(answers), effects);
  }
  const auto delivered = std::make_shared<Notification>();
  late_deliveries_.Post([delivered] { delivered->Notify(); });
  delivered->WaitWithTimeout(absl::Minutes(1));
}

}  // namespace cohort::coordinator
