#include "worker/daemon/gpu/gpu_table.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

class GpuTableTest : public ::testing::Test {
 protected:
  // Opens a GpuOfWorker without members: the table does not use them.
  GpuTable table_{[this](const std::string& uuid) -> absl::StatusOr<GpuOfWorker> {
    ++opened_;
    if (uuid == "slow") {
      is_opening_ = true;
      const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
      while (!may_open_ && Clock::Steady().Now() < deadline) std::this_thread::yield();
    }
    if (uuid == "none") return absl::FailedPreconditionError("no such GPU");
    return GpuOfWorker();
  }};
  std::atomic<int> opened_{0};
  std::atomic<bool> is_opening_{false};
  std::atomic<bool> may_open_{false};
};

TEST_F(GpuTableTest, EachGpuIsOpenedOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] { EXPECT_TRUE(table_.Find("fast").ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opened_, 1);
}

TEST_F(GpuTableTest, WhileOneIsOpenedOthersAreFound) {
  ASSERT_TRUE(table_.Find("fast").ok());
  std::thread first([this] { EXPECT_TRUE(table_.Find("slow").ok()); });
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(10);
  while (!is_opening_ && Clock::Steady().Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(table_.Find("fast").ok());
  EXPECT_TRUE(table_.Find("another").ok());
  EXPECT_LT(Clock::Steady().Now(), deadline) << "they waited for the slow one";
  may_open_ = true;
  first.join();
  EXPECT_EQ(opened_, 3);
}

TEST_F(GpuTableTest, OneThatCannotBeOpenedIsTriedAgain) {
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(table_.Find("none").status(), absl::FailedPreconditionError("no such GPU"));
    EXPECT_EQ(opened_, i);
  }
  EXPECT_EQ(table_.Find("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.Find(std::string(65, 'x')).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(opened_, 3);
}

}  // namespace
}  // namespace cohort::worker
