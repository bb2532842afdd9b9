#include "worker/daemon/limits/idle_stream_watch.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/testing/no_new_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

class TestStream final : public IdleStreamWatch::Stream {
 public:
  void OnIdle(absl::Duration) override {
    if (!idle.HasBeenNotified()) idle.Notify();
  }

  using Stream::Touch;

  absl::Notification idle;
};

TEST(StreamWatchTest, AStreamThatEndsUnnamedGivesItsPlaceBack) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Hours(1), /*max_unnamed=*/2);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<TestStream>> streams;
    for (int i = 0; i < 2; ++i) {
      streams.push_back(std::make_shared<TestStream>());
      const absl::Status added = watch.Add(streams.back(), {});
      ASSERT_TRUE(added.ok()) << "round " << round << ": " << added;
    }
    EXPECT_EQ(watch.Add(std::make_shared<TestStream>(), {}).code(),
              absl::StatusCode::kResourceExhausted);
    // One stream names its session, which frees its place before it is removed.
    watch.Name(streams[0].get());
    for (const auto& stream : streams) watch.Remove(stream.get());
  }
}

TEST(StreamWatchTest, AnIdentityLeavesOthersAQuarterOfTheUnnamedStreams) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Hours(1), /*max_unnamed=*/8);
  std::vector<std::shared_ptr<TestStream>> streams;
  const auto add = [&](const char* identity) {
    streams.push_back(std::make_shared<TestStream>());
    return watch.Add(streams.back(), {identity, ""});
  };
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(add("spiffe://a").ok());
  EXPECT_EQ(add("spiffe://a").message(),
            "6 streams of spiffe://a have not sent their first part, as many as one identity may "
            "have of 8 (--max-calls)");
  EXPECT_TRUE(add("spiffe://b").ok());
  // A stream that names its session, and one that ends, give their places back once.
  watch.Name(streams[0].get());
  watch.Remove(streams[0].get());
  EXPECT_TRUE(add("spiffe://a").ok());
  EXPECT_FALSE(add("spiffe://a").ok());
  watch.Remove(streams[1].get());
  EXPECT_TRUE(add("spiffe://a").ok());
  EXPECT_FALSE(add("spiffe://a").ok());
  for (const auto& stream : streams) watch.Remove(stream.get());
}

TEST(StreamWatchTest, ATenantLeavesOthersAnEighthOfTheUnnamedStreams) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Hours(1), /*max_unnamed=*/8);
  std::vector<std::shared_ptr<TestStream>> streams;
  const auto add = [&](const char* identity, const char* tenant) {
    streams.push_back(std::make_shared<TestStream>());
    return watch.Add(streams.back(), {identity, tenant});
  };
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(add("spiffe://a1", "a").ok());
  EXPECT_TRUE(add("spiffe://a2", "a").ok());
  EXPECT_EQ(add("spiffe://a2", "a").message(),
            "7 streams of tenant a have not sent their first part, as many as one tenant may "
            "have of 8 (--max-calls)");
  EXPECT_TRUE(add("spiffe://b", "b").ok());
  watch.Name(streams[0].get());
  EXPECT_TRUE(add("spiffe://a2", "a").ok());
  for (const auto& stream : streams) watch.Remove(stream.get());
}

TEST(StreamWatchTest, NotifiesAnIdleStream) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Milliseconds(20), /*max_unnamed=*/2);
  const auto stream = std::make_shared<TestStream>();
  ASSERT_TRUE(watch.Add(stream, {}).ok());
  EXPECT_TRUE(stream->idle.WaitForNotificationWithTimeout(absl::Seconds(30)));
  watch.Remove(stream.get());
}

TEST(StreamWatchTest, NotifiesAnIdleStreamThatWasNamedFromTheStart) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Milliseconds(20), /*max_unnamed=*/0);
  const auto stream = std::make_shared<TestStream>();
  ASSERT_TRUE(watch.AddNamed(stream).ok());
  EXPECT_TRUE(stream->idle.WaitForNotificationWithTimeout(absl::Seconds(30)));
  watch.Remove(stream.get());
}

// The watch looks several times within the limit.
TEST(StreamWatchTest, AStreamThatMovesAndOneThatIsRemovedAreNotIdle) {
  constexpr absl::Duration kLimit = absl::Seconds(1);
  auto watch = std::make_unique<IdleStreamWatch>(kLimit, /*max_unnamed=*/3);
  const auto removed = std::make_shared<TestStream>();
  const auto moves = std::make_shared<TestStream>();
  const Instant begin = Clock::Steady().Now();
  const auto idle = std::make_shared<TestStream>();
  for (const auto& stream : {removed, moves, idle}) ASSERT_TRUE(watch->Add(stream, {}).ok());
  watch->Remove(removed.get());
  const Instant end = begin + absl::Seconds(30);
  while (!idle->idle.HasBeenNotified() && Clock::Steady().Now() < end) {
    moves->Touch();
    std::this_thread::yield();
  }
  EXPECT_TRUE(idle->idle.HasBeenNotified());
  EXPECT_GE(Clock::Steady().Now() - begin, kLimit);
  for (const auto& stream : {moves, idle}) watch->Remove(stream.get());
  watch.reset();  // its last look is over
  EXPECT_FALSE(moves->idle.HasBeenNotified());
  EXPECT_FALSE(removed->idle.HasBeenNotified());
}

// A stream that the watch cannot end would keep its place.
TEST(StreamWatchTest, WithoutAThreadItTakesNoStream) {
  std::optional<testing::NoNewThreads> refused(std::in_place);
  IdleStreamWatch watch(/*idle_limit=*/absl::Milliseconds(20), /*max_unnamed=*/1);
  const auto stream = std::make_shared<TestStream>();
  for (const absl::Status& status : {watch.Add(stream, {}), watch.AddNamed(stream)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start thread cohort-streams"));
  }
  refused.reset();
  ASSERT_TRUE(watch.Add(stream, {}).ok());
  EXPECT_TRUE(stream->idle.WaitForNotificationWithTimeout(absl::Seconds(30)));
  watch.Remove(stream.get());
}

}  // namespace
}  // namespace cohort::worker
