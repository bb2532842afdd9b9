#include "worker/daemon/limits/idle_stream_watch.h"

#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

class TestStream final : public IdleStreamWatch::Stream {
 public:
  void OnIdle(absl::Duration) override {
    if (!idle.HasBeenNotified()) idle.Notify();
  }

  absl::Notification idle;
};

TEST(StreamWatchTest, AStreamThatEndsUnnamedGivesItsPlaceBack) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Hours(1), /*max_unnamed=*/2);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<TestStream>> streams;
    for (int i = 0; i < 2; ++i) {
      streams.push_back(std::make_shared<TestStream>());
      const absl::Status added = watch.Add(streams.back());
      ASSERT_TRUE(added.ok()) << "round " << round << ": " << added;
    }
    EXPECT_EQ(watch.Add(std::make_shared<TestStream>()).code(),
              absl::StatusCode::kResourceExhausted);
    // One stream names its session, which frees its place before it is removed.
    watch.Name(streams[0].get());
    for (const auto& stream : streams) watch.Remove(stream.get());
  }
}

TEST(StreamWatchTest, NotifiesAnIdleStream) {
  IdleStreamWatch watch(/*idle_limit=*/absl::Milliseconds(20), /*max_unnamed=*/2);
  const auto stream = std::make_shared<TestStream>();
  ASSERT_TRUE(watch.Add(stream).ok());
  EXPECT_TRUE(stream->idle.WaitForNotificationWithTimeout(absl::Seconds(30)));
  watch.Remove(stream.get());
}

}  // namespace
}  // namespace cohort::worker
