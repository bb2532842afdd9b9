// A member's main thread is stuck while its lease thread lives: its missing progress reveals it,
// and the error names it.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::CauseKind;
using client::EventKind;
using client::ProcessGroup;
using client::ProcessGroupOptions;
using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::ChildProcess;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::Events;
using testing::kTimeout;

// Reports progress from a thread of its own, as a training loop does, until the object ends.
class Worker {
 public:
  explicit Worker(ProcessGroup& group)
      : thread_([this, &group] {
          for (int64_t step = 1; !stop_; ++step) {
            group.ReportProgress(step, "step");
            testing::Eventually([this] { return stop_.load(); }, absl::Milliseconds(20));
          }
        }) {}
  ~Worker() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class NoProgressTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(coordinator_.Start().ok()); }

  // Joins ranks 0 and 1 here, and rank 2 in a process of its own, whose main thread then hangs in a
  // read of its input.
  void Join(absl::Duration progress_timeout) {
    stuck_ = std::make_unique<ChildProcess>(std::vector<std::string>{
        "tests/failure/testing/member_main", coordinator_.address(), "group", "2", "3",
        "member=stuck", absl::StrCat("progress_ms=", absl::ToInt64Milliseconds(progress_timeout))});
    Answers<std::shared_ptr<std::unique_ptr<ProcessGroup>>> joined(2);
    for (int rank = 0; rank < 2; ++rank) {
      ProcessGroupOptions options =
          testing::MemberOptions(Connect(coordinator_.address()), "group", rank, 3);
      options.progress_timeout = progress_timeout;
      options.on_event = events_[rank].Slot();
      ProcessGroup::CreateAsync(options, [slot = joined.Slot(rank)](
                                             absl::StatusOr<std::unique_ptr<ProcessGroup>> member) {
        ASSERT_TRUE(member.ok()) << member.status();
        slot(std::make_shared<std::unique_ptr<ProcessGroup>>(*std::move(member)));
      });
    }
    ASSERT_TRUE(joined.AwaitAll());
    for (int rank = 0; rank < 2; ++rank) members_.push_back(std::move(*joined[rank]));
    const absl::StatusOr<std::string> line = stuck_->ReadLine(kTimeout);
    ASSERT_TRUE(line.ok()) << line.status();
  }

  CoordinatorProcess coordinator_{{}};
  std::unique_ptr<ChildProcess> stuck_;
  Events events_[2];
  std::vector<std::unique_ptr<ProcessGroup>> members_;
};

TEST_F(NoProgressTest, WorkingAndWaitingMembersLearnTheStuckMember) {
  ASSERT_NO_FATAL_FAILURE(Join(absl::Seconds(2)));
  stuck_->WriteLine("progress 1");
  ASSERT_TRUE(stuck_->ReadLine(kTimeout).ok());

  Worker first(*members_[0]);
  Worker second(*members_[1]);
  client::RoundOptions options;
  options.timeout = kTimeout;
  Answers<BarrierAnswer> answers(2);
  for (int rank = 0; rank < 2; ++rank)
    members_[rank]->async().Barrier(options, BarrierSlot(answers, rank));
  ASSERT_TRUE(answers.AwaitAll());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(answers[rank].status.code(), absl::StatusCode::kAborted) << answers[rank].status;
    const client::Cause cause = client::GetErrorInfo(answers[rank].status).cause;
    EXPECT_EQ(cause.kind, CauseKind::kNoProgress) << client::CauseKindName(cause.kind);
    EXPECT_EQ(cause.member, "stuck");
    EXPECT_EQ(cause.rank, 2);
    const std::optional<client::GroupEvent> lost = events_[rank].Await(EventKind::kLost);
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->cause.kind, CauseKind::kNoProgress);
  }
}

TEST_F(NoProgressTest, MembersThatWaitInABarrierAreNotStuck) {
  ASSERT_NO_FATAL_FAILURE(Join(absl::Seconds(2)));
  // The threads of ranks 0 and 1 stand still as well, and for longer, but in a wait that the
  // coordinator knows of.
  client::RoundOptions options;
  options.timeout = kTimeout;
  Answers<BarrierAnswer> answers(2);
  for (int rank = 0; rank < 2; ++rank)
    members_[rank]->async().Barrier(options, BarrierSlot(answers, rank));
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 2));
  int step = 1;
  // Rank 2 works for two timeouts, and only then is stuck.
  testing::Eventually(
      [&] {
        stuck_->WriteLine(absl::StrCat("progress ", step++));
        return !stuck_->ReadLine(kTimeout).ok() || answers.arrived() > 0;
      },
      absl::Seconds(4));
  EXPECT_EQ(answers.arrived(), 0) << "lost while all was well: " << answers[0].status;
  ASSERT_TRUE(answers.AwaitAll());
  for (int rank = 0; rank < 2; ++rank) {
    const client::Cause cause = client::GetErrorInfo(answers[rank].status).cause;
    EXPECT_EQ(cause.kind, CauseKind::kNoProgress) << answers[rank].status;
    EXPECT_EQ(cause.member, "stuck") << answers[rank].status;
  }
}

TEST_F(NoProgressTest, MembersThatWorkAreNotLostThoughTheLeaseIsLongerThanTheTimeout) {
  ASSERT_NO_FATAL_FAILURE(Join(absl::Seconds(1)));
  std::atomic<bool> stop = false;
  std::thread third([&] {
    for (int step = 1; !stop; ++step) {
      stuck_->WriteLine(absl::StrCat("progress ", step));
      EXPECT_TRUE(stuck_->ReadLine(kTimeout).ok());
      testing::Eventually([&] { return stop.load(); }, absl::Milliseconds(20));
    }
  });
  {
    Worker first(*members_[0]);
    Worker second(*members_[1]);
    const std::optional<client::GroupEvent> lost =
        events_[0].Await(EventKind::kLost, absl::Seconds(4));
    EXPECT_FALSE(lost.has_value()) << lost->member << ": " << lost->cause.detail;
    stop = true;
    third.join();
  }
}

}  // namespace
}  // namespace cohort
