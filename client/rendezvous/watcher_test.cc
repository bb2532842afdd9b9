// Watches of a group against a scripted coordinator: how they open again, and how they end.
// client/python/tests/watch_test.py uses a real one.
#include "client/rendezvous/watcher.h"

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/testing/process_group_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The revision that the scripted coordinator gives to a group.
constexpr int64_t kFirst = 1000;
constexpr absl::Duration kShort = absl::Seconds(1);

class WatcherTest : public ProcessGroupTestBase {
 protected:
  // A watch that ends in any case.
  static WatcherOptions Bounded() {
    WatcherOptions options;
    options.timeout = kLong;
    return options;
  }
  std::unique_ptr<GroupWatcher> Watch(const WatcherOptions& options = Bounded()) {
    const auto connection = Connection::Create(Options().connection);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return AdminClient::Create(*connection, kLong)->NewGroupWatcher("g", options);
  }
  std::unique_ptr<GroupWatcher> OpenWatch(const WatcherOptions& options = Bounded()) {
    auto watcher = Watch(options);
    const absl::Status opened = watcher->Open();
    EXPECT_TRUE(opened.ok()) << opened;
    return watcher;
  }
  void Publish(int64_t revision, v1::GroupEventKind kind = v1::GROUP_EVENT_KIND_LEFT) {
    v1::GroupEvent event;
    event.set_revision(revision);
    event.set_kind(kind);
    fake_.PublishEvent(event);
  }
  // The revisions from which streams were opened.
  std::vector<int64_t> Opened() {
    std::vector<int64_t> revisions;
    for (const SeenCall& call : fake_.Seen("WatchGroup")) revisions.push_back(call.offset);
    return revisions;
  }
};

// The revisions of events; an error is the number of its code, negated.
std::vector<int64_t> Revisions(const absl::StatusOr<std::vector<GroupEvent>>& events) {
  if (!events.ok()) return {-static_cast<int64_t>(events.status().code())};
  std::vector<int64_t> revisions;
  for (const GroupEvent& event : *events) revisions.push_back(event.revision);
  return revisions;
}

// An asynchronous call of Next.
class Step {
 public:
  explicit Step(GroupWatcher& watcher)
      : cancellation(std::make_shared<Cancellation>()), answer_(promise_->get_future()) {
    watcher.Next(cancellation,
                 [promise = promise_](absl::StatusOr<std::vector<GroupEvent>> events) {
                   promise->set_value(std::move(events));
                 });
  }
  bool Waits() const {
    return answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  absl::StatusOr<std::vector<GroupEvent>> Await() {
    if (answer_.wait_for(absl::ToChronoMilliseconds(kLong)) != std::future_status::ready) {
      return absl::InternalError("no answer");
    }
    return answer_.get();
  }

  const std::shared_ptr<Cancellation> cancellation;

 private:
  const std::shared_ptr<std::promise<absl::StatusOr<std::vector<GroupEvent>>>> promise_ =
      std::make_shared<std::promise<absl::StatusOr<std::vector<GroupEvent>>>>();
  std::future<absl::StatusOr<std::vector<GroupEvent>>> answer_;
};

TEST_F(WatcherTest, BeginsWithTheGroupAsItIs) {
  auto watcher = Watch();
  EXPECT_FALSE(watcher->info().has_value());
  EXPECT_EQ(watcher->revision(), 0);
  ASSERT_TRUE(watcher->Open().ok());
  ASSERT_TRUE(watcher->info().has_value());
  EXPECT_EQ(watcher->info()->revision, kFirst);
  EXPECT_EQ(watcher->revision(), kFirst);
  Publish(kFirst);
  Publish(kFirst + 1);
  EXPECT_THAT(Revisions(watcher->Next()), ElementsAre(kFirst + 1));
  EXPECT_EQ(watcher->revision(), kFirst + 1);
  EXPECT_THAT(Opened(), ElementsAre(kFirst));
}

TEST_F(WatcherTest, GoesOnAfterTheLastEventWhenTheConnectionBreaks) {
  auto watcher = OpenWatch();
  for (int64_t i = 1; i <= 3; ++i) {
    Step step(*watcher);
    fake_.Stop();
    fake_.Start();
    Publish(kFirst + i);
    EXPECT_THAT(Revisions(step.Await()), ElementsAre(kFirst + i));
  }
  const std::vector<int64_t> opened = Opened();
  EXPECT_EQ(opened.front(), kFirst);
  EXPECT_EQ(opened.back(), kFirst + 2);
}

TEST_F(WatcherTest, GoesOnAfterABookmark) {
  auto watcher = OpenWatch();
  Step step(*watcher);
  Publish(kFirst + 5, v1::GROUP_EVENT_KIND_UNSPECIFIED);
  const Instant end = Clock::Steady().Now() + kLong;
  while (watcher->revision() != kFirst + 5 && Clock::Steady().Now() < end)
    std::this_thread::yield();
  EXPECT_EQ(watcher->revision(), kFirst + 5);
  EXPECT_TRUE(step.Waits());
  fake_.Stop();
  fake_.Start();
  Publish(kFirst + 6);
  EXPECT_THAT(Revisions(step.Await()), ElementsAre(kFirst + 6));
  EXPECT_EQ(Opened().back(), kFirst + 5);
}

TEST_F(WatcherTest, TriesAgainWhileTheCoordinatorIsAway) {
  fake_.FailNext("WatchGroup", std::vector<grpc::Status>(3, Away()));
  auto watcher = OpenWatch();
  EXPECT_THAT(Opened(), SizeIs(4));
}

TEST_F(WatcherTest, GivesUpAfterTheReconnectTimeout) {
  WatcherOptions options = Bounded();
  options.reconnect_timeout = kShort;
  auto watcher = OpenWatch(options);
  fake_.Stop();
  const absl::Status gone = watcher->Next().status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("watch_group g gave up after"));
  // The next call tries again, from the same revision.
  fake_.Start();
  Publish(kFirst + 1);
  EXPECT_THAT(Revisions(watcher->Next()), ElementsAre(kFirst + 1));
  EXPECT_EQ(Opened().back(), kFirst);
}

TEST_F(WatcherTest, ACoordinatorThatDoesNotAnswerIsAway) {
  WatcherOptions options = Bounded();
  options.reconnect_timeout = kShort;
  options.from_revision = 5;
  fake_.Hold("WatchGroup", true);
  auto watcher = Watch(options);
  const absl::Status silent = watcher->Open();
  EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(silent.message()), HasSubstr("watch_group g got no answer in"));
  fake_.Hold("WatchGroup", false);
  EXPECT_TRUE(watcher->Open().ok());
}

TEST_F(WatcherTest, ARestartedCoordinatorDoesNotKnowTheEvents) {
  auto watcher = OpenWatch();
  Publish(kFirst + 1);
  EXPECT_THAT(Revisions(watcher->Next()), ElementsAre(kFirst + 1));
  fake_.set_incarnation("2");
  fake_.Stop();
  fake_.Start();
  // It may stand for another event now.
  Publish(kFirst + 2);
  for (int i = 0; i < 2; ++i) {
    const absl::Status restarted = watcher->Next().status();
    EXPECT_EQ(restarted.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(restarted.message()), HasSubstr("has restarted since revision 1001"));
  }
  EXPECT_THAT(Revisions(OpenWatch()->Next()), SizeIs(2));
}

TEST_F(WatcherTest, OneMessageWaitsForTheConsumer) {
  auto watcher = OpenWatch();
  Step first(*watcher);
  Publish(kFirst + 1);
  EXPECT_THAT(Revisions(first.Await()), ElementsAre(kFirst + 1));
  // The stream fails behind the message that the consumer has not taken.
  Publish(kFirst + 2);
  fake_.Stop();
  fake_.Start();
  EXPECT_EQ(watcher->revision(), kFirst + 1);
  EXPECT_THAT(Revisions(watcher->Next()), ElementsAre(kFirst + 2));
  Publish(kFirst + 3);
  EXPECT_THAT(Revisions(watcher->Next()), ElementsAre(kFirst + 3));
}

TEST_F(WatcherTest, ACancelledStepLosesNoEvent) {
  auto watcher = OpenWatch();
  for (int64_t i = 1; i <= 50; ++i) {
    Step step(*watcher);
    Publish(kFirst + i);
    step.cancellation->Cancel(absl::AbortedError("enough"));
    auto events = step.Await();
    if (!events.ok()) {
      EXPECT_EQ(events.status(), absl::AbortedError("enough"));
      events = watcher->Next();
    }
    EXPECT_THAT(Revisions(events), ElementsAre(kFirst + i));
  }
  Step waits(*watcher);
  EXPECT_TRUE(waits.Waits());
  waits.cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(waits.Await().status(), absl::AbortedError("enough"));
  auto cancelled = std::make_shared<Cancellation>();
  cancelled->Cancel(absl::AbortedError("before"));
  const CancellationScope scope(*cancelled);
  EXPECT_EQ(watcher->Next().status(), absl::AbortedError("before"));
}

TEST_F(WatcherTest, ASuspendedWatchHasNoStream) {
  auto watcher = OpenWatch();
  ASSERT_TRUE(fake_.AwaitOpenWatches(1));
  Step step(*watcher);
  watcher->Suspend();
  EXPECT_TRUE(absl::IsCancelled(step.Await().status()));
  EXPECT_TRUE(fake_.AwaitOpenWatches(0));
  watcher->Suspend();
  Publish(kFirst + 1);
  EXPECT_THAT(Revisions(watcher->Next()), ElementsAre(kFirst + 1));
  EXPECT_TRUE(fake_.AwaitOpenWatches(1));
}

TEST_F(WatcherTest, AClosedWatchHasNoStream) {
  auto watcher = OpenWatch();
  Step step(*watcher);
  watcher->Close();
  EXPECT_TRUE(absl::IsCancelled(step.Await().status()));
  EXPECT_TRUE(absl::IsCancelled(watcher->Next().status()));
  EXPECT_TRUE(absl::IsCancelled(watcher->Open()));
  EXPECT_TRUE(fake_.AwaitOpenWatches(0));
}

TEST_F(WatcherTest, ADestroyedWatchHasNoStream) {
  for (int i = 0; i < 20; ++i) {
    // At any moment of its opening.
    auto opening = Watch();
    Step step(*opening);
    if (i % 2 == 0) {
      ASSERT_TRUE(fake_.AwaitSeen("WatchGroup", static_cast<size_t>(i / 2 + 1)));
    }
    opening.reset();
    EXPECT_TRUE(absl::IsCancelled(step.Await().status()));
  }
  auto watcher = OpenWatch();
  Publish(kFirst + 1);
  watcher.reset();
  EXPECT_TRUE(fake_.AwaitOpenWatches(0));
}

// The call that asks for the revision ends once, wherever it is.
TEST_F(WatcherTest, AWatchMayBeDestroyedWhileItConnects) {
  for (int i = 0; i < 3000; ++i) {
    auto opening = Watch();
    Step step(*opening);
    const Instant until = Clock::Steady().Now() + absl::Microseconds(i % 300);
    while (Clock::Steady().Now() < until) {
    }
    opening.reset();
    EXPECT_TRUE(absl::IsCancelled(step.Await().status()));
  }
}

TEST_F(WatcherTest, EndsAfterItsTimeout) {
  WatcherOptions options;
  options.timeout = kShort;
  auto watcher = OpenWatch(options);
  EXPECT_THAT(Revisions(watcher->Next()), SizeIs(0));
  EXPECT_THAT(Revisions(watcher->Next()), SizeIs(0));
  EXPECT_TRUE(fake_.AwaitOpenWatches(0));
}

TEST_F(WatcherTest, TwoStepsAtOnceAreRefused) {
  auto watcher = OpenWatch();
  Step first(*watcher), second(*watcher);
  EXPECT_EQ(second.Await().status().code(), absl::StatusCode::kFailedPrecondition);
  Publish(kFirst + 1);
  EXPECT_THAT(Revisions(first.Await()), ElementsAre(kFirst + 1));
}

TEST_F(WatcherTest, ErrorsOfTheCoordinator) {
  fake_.FailNext("GetGroup", {grpc::Status(grpc::StatusCode::NOT_FOUND, "no group g")});
  auto watcher = Watch();
  EXPECT_TRUE(absl::IsNotFound(watcher->Open()));
  fake_.FailNext("WatchGroup", {Wrong(), grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "gone")});
  EXPECT_TRUE(absl::IsInvalidArgument(watcher->Open()));
  EXPECT_TRUE(absl::IsOutOfRange(watcher->Next().status()));
  EXPECT_TRUE(watcher->Open().ok());
}

}  // namespace
}  // namespace cohort::client
