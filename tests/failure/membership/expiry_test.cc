// Objects that no member receives expire by themselves: no client, alive or dead, has to act.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::GroupStats;
using client::ProcessGroup;
using client::ProcessGroupOptions;
using testing::ChildProcess;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::kTimeout;

constexpr int kCount = 50;
constexpr int kObjectBytes = 2000;
constexpr absl::Duration kExpiration = absl::Seconds(2);

class ExpiryTest : public ::testing::Test {
 protected:
  // Rank 1, in a process of its own, sends `kCount` objects to rank 0 and is killed.
  void SendAndDie(bool share_fate) {
    ASSERT_TRUE(coordinator_.Start().ok());
    ChildProcess sender({"tests/failure/testing/member_main", coordinator_.address(), "group", "1",
                         "2",
                         absl::StrCat("expiration_ms=", absl::ToInt64Milliseconds(kExpiration)),
                         share_fate ? "fate=share" : "fate=report"});
    ProcessGroupOptions options =
        testing::MemberOptions(Connect(coordinator_.address()), "group", 0, 2);
    options.data_expiration = kExpiration;
    options.share_fate = share_fate;
    absl::StatusOr<std::unique_ptr<ProcessGroup>> reader = ProcessGroup::Create(options);
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
    ASSERT_TRUE(sender.ReadLine(kTimeout).ok());
    sender.WriteLine(absl::StrCat("send 0 ", kCount, " ", kObjectBytes));
    const absl::StatusOr<std::string> line = sender.ReadLine(kTimeout);
    ASSERT_EQ(line.value_or("nothing"), "OK ");
    sent_ = Clock::Steady().Now();
    const absl::StatusOr<GroupStats> stats = reader_->Stats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    // On a slow machine the first objects may have expired already; the held bytes are those of the
    // objects that are left.
    EXPECT_GT(stats->object_count, 0);
    EXPECT_GE(stats->bytes_held, stats->object_count * kObjectBytes);
  }

  CoordinatorProcess coordinator_{{}};
  std::unique_ptr<ProcessGroup> reader_;
  Instant sent_;
};

class ExpiryByFateTest : public ExpiryTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ExpiryByFateTest, ObjectsOfADeadSenderAreFreed) {
  ASSERT_NO_FATAL_FAILURE(SendAndDie(/*share_fate=*/GetParam()));
  GroupStats stats;
  EXPECT_TRUE(testing::Eventually(
      [&] {
        const absl::StatusOr<GroupStats> now = reader_->Stats();
        if (now.ok()) stats = *now;
        return now.ok() && now->object_count == 0 && now->bytes_held == 0;
      },
      absl::Seconds(20)))
      << stats.object_count << " objects, " << stats.bytes_held << " bytes";
  std::cout << "gone " << Clock::Steady().Now() - sent_
            << " after the last was sent, with an expiration of " << kExpiration << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Fate, ExpiryByFateTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "NotShared"; });

TEST_F(ExpiryTest, AReaderLearnsOnceThatItsObjectsExpired) {
  ASSERT_NO_FATAL_FAILURE(SendAndDie(/*share_fate=*/false));
  GroupStats stats;
  ASSERT_TRUE(testing::Eventually(
      [&] {
        const absl::StatusOr<GroupStats> now = reader_->Stats();
        if (now.ok()) stats = *now;
        return now.ok() && now->objects_expired == kCount;
      },
      absl::Seconds(20)))
      << stats.objects_expired << " expired, " << stats.object_count << " are there";
  const absl::StatusOr<std::string> first = reader_->Receive(1, "", absl::Seconds(5));
  EXPECT_EQ(first.status().code(), absl::StatusCode::kDataLoss) << first.status();
  const absl::StatusOr<std::string> second = reader_->Receive(1, "", absl::Seconds(5));
  EXPECT_NE(second.status().code(), absl::StatusCode::kDataLoss) << second.status();
  EXPECT_FALSE(second.ok());
}

}  // namespace
}  // namespace cohort
