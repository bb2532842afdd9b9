// One file, though long: all tests share a journal that can be held back, and a sink for replies.
#include "coordinator/service/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

// Longer than anything here takes; only a hang reaches it.
constexpr auto kTimeout = std::chrono::seconds(20);

// A journal that is as slow or as broken as a test wants.
class FakeJournal final : public Journal {
 public:
  // The part that the test keeps while the engine owns the journal.
  struct Control {
    std::mutex mutex;
    std::condition_variable changed;
    bool blocked = false;
    absl::Status result;
    int appends_begun = 0;
    int appends_done = 0;
    std::vector<Record> rows;

    void Block(bool value) {
      std::lock_guard<std::mutex> lock(mutex);
      blocked = value;
      changed.notify_all();
    }
    void WaitForAppends(int count) {
      std::unique_lock<std::mutex> lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, kTimeout, [&] { return appends_begun >= count; }));
    }
    int AppendsDone() {
      std::lock_guard<std::mutex> lock(mutex);
      return appends_done;
    }
  };

  explicit FakeJournal(std::shared_ptr<Control> control) : control_(std::move(control)) {}

  using Journal::Open;
  absl::StatusOr<int64_t> Open(const RowSink&) override { return 1; }
  absl::Status Append(const std::vector<Record>& records) override {
    std::unique_lock<std::mutex> lock(control_->mutex);
    ++control_->appends_begun;
    control_->changed.notify_all();
    control_->changed.wait(lock, [&] { return !control_->blocked; });
    ++control_->appends_done;
    if (control_->result.ok()) {
      control_->rows.insert(control_->rows.end(), records.begin(), records.end());
    }
    return control_->result;
  }
  bool keeps_nothing() const override { return false; }
  const char* name() const override { return "fake"; }

 private:
  const std::shared_ptr<Control> control_;
};

class NoJournal final : public Journal {
 public:
  using Journal::Open;
  absl::StatusOr<int64_t> Open(const RowSink&) override { return 1; }
  absl::Status Append(const std::vector<Record>&) override {
    return absl::InternalError("must not be called");
  }
  bool keeps_nothing() const override { return true; }
  const char* name() const override { return "none"; }
};

class Sink final : public ReplySink {
 public:
  Sink() = default;
  // `on_reply` runs before the reply can be seen.
  explicit Sink(std::function<void()> on_reply) : on_reply_(std::move(on_reply)) {}
  void OnReply(Reply&& reply, DeliveryContext&) override {
    if (on_reply_) on_reply_();
    std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    reply_ = std::move(reply);
    changed_.notify_all();
  }
  absl::Status CheckRights() override { return rights; }
  bool IsInVain() override { return ++looks > looks_until_in_vain; }
  int count() {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }
  Reply Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kTimeout, [&] { return count_ > 0; });
    EXPECT_EQ(count_, 1);
    return reply_;
  }

  absl::Status rights;
  int looks = 0;
  int looks_until_in_vain = 1000;

 private:
  const std::function<void()> on_reply_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  Reply reply_;
};

Call StoreCall(CallBody body) {
  Call call;
  call.caller.key.tenant = "default";
  call.body = std::move(body);
  return call;
}
Call Put(std::string key, std::string value) {
  PutCall body;
  body.key = std::move(key);
  body.value = std::move(value);
  return StoreCall(std::move(body));
}
Call Get(std::string key, absl::Duration wait = absl::ZeroDuration()) {
  GetCall body;
  body.keys = {std::move(key)};
  body.wait = wait > absl::ZeroDuration();
  Call call = StoreCall(std::move(body));
  call.wait = wait;
  return call;
}

std::unique_ptr<Engine> StartEngine(std::unique_ptr<Journal> journal,
                                    std::function<void(const absl::Status&)> on_failure = nullptr) {
  return Engine::Start(EngineOptions(), std::move(journal), Clock::Steady(), nullptr,
                       std::move(on_failure))
      .value();
}

TEST(EngineTest, WithoutJournalAnswersComeInline) {
  auto engine = StartEngine(std::make_unique<NoJournal>());
  Sink put;
  engine->Submit(Put("k", "v"), &put);
  EXPECT_EQ(put.count(), 1);
  Sink get;
  engine->Submit(Get("k"), &get);
  ASSERT_EQ(get.count(), 1);
  EXPECT_EQ(std::get<GetReply>(get.Wait().body).values.at(0).value.bytes(), "v");
  engine->Shutdown();
}

TEST(EngineTest, ReportsGroupEventsToTheObserver) {
  class Observer final : public EngineObserver {
   public:
    void OnRoundEnd(const RoundEnd&) override {}
    void OnGroupEvent(const GroupKey& key, const GroupEvent& event) override {
      events.push_back(key.group + " " + EventKindName(event.kind));
    }
    void OnAppend(absl::Duration, size_t) override {}
    std::vector<std::string> events;
  } observer;
  auto engine = Engine::Start(EngineOptions(), std::make_unique<NoJournal>(), Clock::Steady(),
                              &observer, nullptr)
                    .value();
  JoinCall join;
  join.member = "m";
  join.spec = GroupSpec();
  join.spec->min_members = join.spec->max_members = 1;
  Call call;
  call.caller.key = GroupKey{"default", "g"};
  call.body = join;
  Sink joined;
  engine->Submit(call, &joined);
  const Reply reply = joined.Wait();
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  call.caller.session = std::get<JoinReply>(reply.body).session;
  call.body = LeaveCall{"done"};
  Sink left;
  engine->Submit(call, &left);
  EXPECT_TRUE(left.Wait().status.ok());
  EXPECT_THAT(observer.events,
              ::testing::ElementsAre("g joined", "g active", "g left", "g closed"));
  engine->Shutdown();
}

TEST(EngineTest, NothingIsAnsweredBeforeItIsDurable) {
  auto control = std::make_shared<FakeJournal::Control>();
  control->Block(true);
  auto engine = StartEngine(std::make_unique<FakeJournal>(control));
  const auto expect_durable = [&] { EXPECT_EQ(control->AppendsDone(), 1); };
  Sink put(expect_durable);
  engine->Submit(Put("k", "v"), &put);
  control->WaitForAppends(1);
  // A read of the same shard sees what could still be lost: it waits too.
  Sink get(expect_durable);
  engine->Submit(Get("k"), &get);
  EXPECT_EQ(put.count(), 0);
  EXPECT_EQ(get.count(), 0);
  control->Block(false);
  EXPECT_TRUE(put.Wait().status.ok());
  EXPECT_TRUE(get.Wait().status.ok());
  // With nothing pending a read is answered inline.
  Sink again;
  engine->Submit(Get("k"), &again);
  EXPECT_EQ(again.count(), 1);
  engine->Shutdown();
}

TEST(EngineTest, StepsThatQueueAreWrittenTogether) {
  auto control = std::make_shared<FakeJournal::Control>();
  control->Block(true);
  auto engine = StartEngine(std::make_unique<FakeJournal>(control));
  std::vector<Sink> sinks(100);
  engine->Submit(Put("first", "v"), &sinks[0]);
  control->WaitForAppends(1);
  for (int i = 1; i < 100; ++i) engine->Submit(Put(std::to_string(i), "v"), &sinks[i]);
  control->Block(false);
  for (Sink& sink : sinks) EXPECT_TRUE(sink.Wait().status.ok());
  std::lock_guard<std::mutex> lock(control->mutex);
  EXPECT_EQ(control->appends_done, 2);
}

// Several batches have been written, one of them with several steps.
TEST(EngineTest, NothingIsAnsweredBeforeItIsDurableAfterOtherWrites) {
  auto control = std::make_shared<FakeJournal::Control>();
  control->Block(true);
  auto engine = StartEngine(std::make_unique<FakeJournal>(control));
  std::vector<Sink> earlier(4);
  engine->Submit(Put("0", "v"), &earlier[0]);
  control->WaitForAppends(1);
  for (int i = 1; i < 4; ++i) engine->Submit(Put(std::to_string(i), "v"), &earlier[i]);
  control->Block(false);
  for (Sink& sink : earlier) EXPECT_TRUE(sink.Wait().status.ok());

  control->Block(true);
  const auto expect_durable = [&] { EXPECT_EQ(control->AppendsDone(), 3); };
  Sink put(expect_durable);
  engine->Submit(Put("k", "v"), &put);
  control->WaitForAppends(3);
  Sink get(expect_durable);
  engine->Submit(Get("k"), &get);
  EXPECT_EQ(get.count(), 0);
  control->Block(false);
  EXPECT_TRUE(put.Wait().status.ok());
  EXPECT_TRUE(get.Wait().status.ok());
  engine->Shutdown();
}

// Each group is in one of the shards.
TEST(EngineTest, NoCallOfAllShardsIsAnsweredBeforeWhatItSawIsDurable) {
  auto control = std::make_shared<FakeJournal::Control>();
  auto engine = StartEngine(std::make_unique<FakeJournal>(control));
  for (int i = 0; i < 20; ++i) {
    control->Block(true);
    CreateGroupCall body;
    body.spec.min_members = body.spec.max_members = 1;
    Call create = StoreCall(std::move(body));
    create.caller.key.group = "g" + std::to_string(i);
    Sink created, listed, dumped;
    engine->Submit(std::move(create), &created);
    control->WaitForAppends(i + 1);
    ListGroupsCall list;
    list.page_size = 100;
    engine->Submit(StoreCall(std::move(list)), &listed);
    engine->Submit(StoreCall(DumpWaitsCall{}), &dumped);
    EXPECT_EQ(listed.count(), 0) << i;
    EXPECT_EQ(dumped.count(), 0) << i;
    control->Block(false);
    EXPECT_TRUE(created.Wait().status.ok());
    EXPECT_EQ(std::get<ListGroupsReply>(listed.Wait().body).groups.size(), i + 1u);
    EXPECT_TRUE(dumped.Wait().status.ok());
  }
  engine->Shutdown();
}

TEST(EngineTest, CallsThatWaitForTheJournalAreCharged) {
  auto control = std::make_shared<FakeJournal::Control>();
  control->Block(true);
  auto engine = StartEngine(std::make_unique<FakeJournal>(control));
  constexpr int kPuts = 100;
  std::vector<std::unique_ptr<Sink>> sinks;
  for (int i = 0; i < kPuts; ++i) {
    sinks.push_back(std::make_unique<Sink>());
    engine->Submit(Put("k", "v"), sinks.back().get());
  }
  const auto charged = [&] { return engine->account().held(MemoryKind::kJournal); };
  EXPECT_GE(charged(), kPuts * static_cast<int64_t>(sizeof(Record) + sizeof(Answer)));
  control->Block(false);
  for (const auto& sink : sinks) EXPECT_TRUE(sink->Wait().status.ok());
  engine->Shutdown();
  MemoryAccount& account = engine->account();
  // An answer goes just before its charge does.
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (account.held(MemoryKind::kJournal) != 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(account.held(MemoryKind::kJournal), 0);
}

TEST(EngineTest, AFailedWriteIsNeverAcknowledgedAndStopsTheEngine) {
  auto control = std::make_shared<FakeJournal::Control>();
  control->result = absl::ResourceExhaustedError("disk full");
  std::atomic<int> failures{0};
  auto engine =
      StartEngine(std::make_unique<FakeJournal>(control), [&](const absl::Status&) { ++failures; });
  Sink parked;
  engine->Submit(Get("absent", absl::Seconds(100)), &parked);
  EXPECT_EQ(parked.count(), 0);
  Sink put;
  engine->Submit(Put("k", "v"), &put);
  EXPECT_EQ(put.Wait().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(failures, 1);
  EXPECT_TRUE(engine->failed());
  Sink later;
  engine->Submit(Get("k"), &later);
  EXPECT_EQ(later.Wait().status.code(), absl::StatusCode::kUnavailable);
  engine->Shutdown();
  EXPECT_EQ(parked.Wait().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(failures, 1);
}

TEST(EngineTest, WaitsEndByTheClock) {
  auto engine = StartEngine(std::make_unique<NoJournal>());
  Sink sink;
  const absl::Time start = absl::Now();
  engine->Submit(Get("absent", absl::Milliseconds(50)), &sink);
  EXPECT_EQ(sink.count(), 0);
  const Reply reply = sink.Wait();
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(49));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_THAT(std::get<GetReply>(reply.body).missing_keys, testing::ElementsAre("absent"));
  engine->Shutdown();
}

// Stands still until the test moves it.
class SetClock final : public Clock {
 public:
  Instant Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_.fetch_add(absl::ToInt64Nanoseconds(by)); }

 private:
  std::atomic<int64_t> nanos_{int64_t{1000000000000}};
};

class AsleepTest : public ::testing::Test {
 protected:
  // A group of one, whose lease is 6 s.
  void Start(absl::Duration pause) {
    EngineOptions options;
    options.pause = pause;
    options.suspend_clock = &clock_;
    engine_ = Engine::Start(options, std::make_unique<NoJournal>(), clock_).value();
    JoinCall join;
    join.member = "w0";
    join.incarnation = 1;
    join.spec.emplace();
    join.spec->min_members = join.spec->max_members = 1;
    join.spec->lease = absl::Seconds(6);
    Sink joined;
    engine_->Submit(GroupCall(join), &joined);
    ASSERT_TRUE(joined.Wait().status.ok());
  }
  void TearDown() override { engine_->Shutdown(); }

  static Call GroupCall(CallBody body) {
    Call call = StoreCall(std::move(body));
    call.caller.key.group = "g";
    return call;
  }
  GroupState State() {
    Sink sink;
    engine_->Submit(GroupCall(GetGroupCall{}), &sink);
    return std::get<GetGroupReply>(sink.Wait().body).group.state;
  }

  SetClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(AsleepTest, LeasesStandStillInALongGap) {
  ASSERT_NO_FATAL_FAILURE(Start(EngineOptions().pause));
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(State(), GroupState::kActive);
}

TEST_F(AsleepTest, WaitsEndAllTheSame) {
  ASSERT_NO_FATAL_FAILURE(Start(EngineOptions().pause));
  Sink sink;
  engine_->Submit(Get("absent", absl::Seconds(5)), &sink);
  Sink later;
  CallHandle handle;
  engine_->Submit(Get("absent", absl::Seconds(500)), &later, &handle);
  // By the alarm: nothing else calls.
  clock_.Advance(absl::Seconds(7));
  EXPECT_TRUE(sink.Wait().status.ok());
  EXPECT_TRUE(engine_->Cancel(handle));
}

TEST_F(AsleepTest, LeasesRunByAClockThatMayJump) {
  ASSERT_NO_FATAL_FAILURE(Start(absl::InfiniteDuration()));
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(State(), GroupState::kBroken);
}

TEST(EngineTest, EitherCancelOrOneReply) {
  auto engine = StartEngine(std::make_unique<NoJournal>());
  Sink sink;
  CallHandle handle;
  engine->Submit(Get("absent", absl::Seconds(100)), &sink, &handle);
  EXPECT_TRUE(engine->Cancel(handle));
  EXPECT_FALSE(engine->Cancel(handle));
  Sink put;
  engine->Submit(Put("absent", "v"), &put);
  EXPECT_EQ(sink.count(), 0);
  EXPECT_FALSE(engine->Cancel(CallHandle()));

  // Many times, against a reply that comes at the same moment.
  for (int i = 0; i < 300; ++i) {
    const std::string key = "k" + std::to_string(i);
    Sink waiting;
    CallHandle waiting_handle;
    engine->Submit(Get(key, absl::Seconds(100)), &waiting, &waiting_handle);
    Sink ignored;
    std::thread answers([&] { engine->Submit(Put(key, "v"), &ignored); });
    const bool cancelled = engine->Cancel(waiting_handle);
    answers.join();
    EXPECT_EQ(waiting.count(), cancelled ? 0 : 1);
  }
  engine->Shutdown();
}

TEST(EngineTest, AWaitEndsWithTheRightsForIt) {
  auto engine = StartEngine(std::make_unique<NoJournal>());
  Sink denied;
  Sink admitted;
  Sink put;
  engine->Submit(Get("key", absl::Seconds(100)), &denied);
  engine->Submit(Get("key", absl::Seconds(100)), &admitted);
  engine->EndCallsWithoutRights();
  EXPECT_EQ(denied.count() + admitted.count(), 0);
  denied.rights = absl::PermissionDeniedError("no more");
  engine->EndCallsWithoutRights();
  EXPECT_EQ(denied.Wait().status, denied.rights);
  EXPECT_EQ(admitted.count(), 0);
  engine->Submit(Put("key", "v"), &put);
  EXPECT_TRUE(admitted.Wait().status.ok());
  EXPECT_EQ(denied.count(), 1);
  EXPECT_EQ(engine->Stats().total.waiter_count, 0);
  engine->Shutdown();
}

TEST(EngineTest, ADumpOfAllGroupsEndsWithItsCaller) {
  constexpr int kGroups = 20;
  auto engine = StartEngine(std::make_unique<NoJournal>());
  for (int i = 0; i < kGroups; ++i) {
    CreateGroupCall create;
    create.spec.min_members = create.spec.max_members = 1;
    Call call = StoreCall(std::move(create));
    call.caller.key.group = "g" + std::to_string(i);
    Sink created;
    engine->Submit(std::move(call), &created);
    ASSERT_TRUE(created.Wait().status.ok());
  }
  Sink patient;
  engine->Submit(StoreCall(DumpWaitsCall{}), &patient);
  EXPECT_TRUE(patient.Wait().status.ok());
  EXPECT_GE(patient.looks, kGroups);
  Sink leaving;
  leaving.looks_until_in_vain = kGroups / 2;
  engine->Submit(StoreCall(DumpWaitsCall{}), &leaving);
  EXPECT_EQ(leaving.Wait().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(leaving.looks, kGroups / 2 + 1);
  engine->Shutdown();
}

// Each store is in one of the shards.
TEST(EngineTest, ADumpHasTheWaitsOfTenantsWithoutGroups) {
  constexpr int kTenants = 20;
  auto engine = StartEngine(std::make_unique<NoJournal>());
  std::vector<Sink> waits(kTenants);
  for (int i = 0; i < kTenants; ++i) {
    Call call = Get("absent", absl::Hours(1));
    call.caller.key.tenant = "t" + std::to_string(i);
    engine->Submit(std::move(call), &waits[static_cast<size_t>(i)]);
  }
  for (int i = 0; i < kTenants; ++i) {
    Call call = StoreCall(DumpWaitsCall{});
    call.caller.key.tenant = "t" + std::to_string(i);
    Sink dumped;
    engine->Submit(std::move(call), &dumped);
    EXPECT_EQ(std::get<DumpWaitsReply>(dumped.Wait().body).total_count, 1) << i;
  }
  engine->Shutdown();
}

// The thread of the call that ends many waits serves other clients, too.
TEST(EngineTest, ManyAnswersAreDeliveredByAnotherThread) {
  auto engine = StartEngine(std::make_unique<NoJournal>());
  std::mutex mutex;
  std::vector<std::thread::id> threads;
  const auto take_a_millisecond = [&] {
    const Instant end = Clock::Steady().Now() + absl::Milliseconds(1);
    while (Clock::Steady().Now() < end) {
    }
    std::lock_guard<std::mutex> lock(mutex);
    threads.push_back(std::this_thread::get_id());
  };
  std::vector<std::unique_ptr<Sink>> sinks;
  for (int i = 0; i < 300; ++i) {
    sinks.push_back(std::make_unique<Sink>(take_a_millisecond));
    engine->Submit(Get("key", absl::Seconds(100)), sinks.back().get());
  }
  Sink put;
  engine->Submit(Put("key", "v"), &put);
  Sink other;
  engine->Submit(Get("key"), &other);  // while the rest is on its way
  EXPECT_EQ(other.count(), 1);
  for (const auto& sink : sinks) EXPECT_TRUE(sink->Wait().status.ok());
  EXPECT_TRUE(put.Wait().status.ok());
  EXPECT_EQ(threads.front(), std::this_thread::get_id());
  EXPECT_NE(threads.back(), std::this_thread::get_id());
  const auto own = std::count(threads.begin(), threads.end(), std::this_thread::get_id());
  EXPECT_LT(own, 100);

  // An engine that ends has delivered all.
  for (int i = 0; i < 300; ++i) engine->Submit(Get("absent", absl::Seconds(100)), sinks[0].get());
  engine->Shutdown();
  EXPECT_EQ(sinks[0]->count(), 301);
}

TEST(EngineTest, ShutdownAnswersWhatIsParkedAndRefusesTheRest) {
  auto engine = StartEngine(std::make_unique<NoJournal>());
  std::vector<Sink> sinks(100);
  for (size_t i = 0; i < sinks.size(); ++i) {
    Call call = Get("absent", absl::Seconds(100));
    call.caller.key.tenant = "tenant" + std::to_string(i);  // over all shards
    engine->Submit(std::move(call), &sinks[i]);
  }
  engine->Shutdown();
  for (Sink& sink : sinks) {
    EXPECT_EQ(sink.count(), 1);
    EXPECT_EQ(sink.Wait().status.code(), absl::StatusCode::kUnavailable);
  }
  Sink late;
  engine->Submit(Get("k"), &late);
  EXPECT_EQ(late.Wait().status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cohort::coordinator
