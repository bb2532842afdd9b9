// Two proposals of a next view at the same time: one commits, and the other fails at once and names
// the first.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::EventKind;
using client::ProcessGroupOptions;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::Events;
using ::testing::HasSubstr;
using testing::JoinAll;
using testing::Members;

constexpr int kWorldSize = 5;

class TwoProposalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    connection_ = Connect(coordinator_.address());
  }

  void Join(const std::string& group) {
    events_ = std::vector<Events>(kWorldSize);
    members_ = JoinAll({connection_}, group, kWorldSize, [this](ProcessGroupOptions& options) {
      options.on_event = events_[*options.rank].Slot();
    });
    for (const auto& member : members_) ASSERT_NE(member, nullptr);
  }

  void Accept(int rank) {
    const std::optional<client::GroupEvent> event = events_[rank].Await(EventKind::kViewProposed);
    ASSERT_TRUE(event.has_value() && event->proposal.has_value());
    const absl::StatusOr<client::ViewResult> view =
        members_[rank]->AckView(event->proposal->id, true);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->world_size, kWorldSize - 1);
  }

  CoordinatorProcess coordinator_{{}};
  std::shared_ptr<client::Connection> connection_;
  std::vector<Events> events_;
  Members members_;
};

TEST_F(TwoProposalsTest, TheSecondFailsAtOnceAndNamesTheFirst) {
  ASSERT_NO_FATAL_FAILURE(Join("group"));
  testing::OnThreads(kWorldSize - 1, [&](int rank) {
    if (rank == 0) {
      const absl::StatusOr<client::ViewResult> view = members_[0]->ProposeView({{4, 4}}, {});
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_EQ(view->world_size, kWorldSize - 1);
      EXPECT_EQ(view->generation, 2);
      return;
    }
    if (rank == 1) {
      ASSERT_TRUE(events_[1].Await(EventKind::kViewProposed).has_value());
      const Instant start = Clock::Steady().Now();
      const absl::StatusOr<client::ViewResult> second = members_[1]->ProposeView({{3, 3}}, {});
      EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted) << second.status();
      EXPECT_THAT(std::string(second.status().message()), HasSubstr(members_[0]->member()));
      EXPECT_LT(Clock::Steady().Now() - start, absl::Seconds(5));
    }
    Accept(rank);
  });
  // The excluded member gets an error with the cause.
  const absl::Status out = members_[4]->Barrier();
  EXPECT_EQ(out.code(), absl::StatusCode::kAborted) << out;
  EXPECT_EQ(client::GetErrorInfo(out).cause.kind, client::CauseKind::kViewChanged) << out;
}

TEST_F(TwoProposalsTest, ExactlyOneOfTwoRacingProposalsWins) {
  for (int run = 0; run < 10 && !HasFailure(); ++run) {
    ASSERT_NO_FATAL_FAILURE(Join(absl::StrCat("race-", run)));
    std::atomic<int> won_count = 0;
    testing::OnThreads(4, [&](int rank) {
      if (rank > 1) return Accept(rank);
      const absl::StatusOr<client::ViewResult> view = members_[rank]->ProposeView({{4, 4}}, {});
      if (view.ok()) {
        ++won_count;
        EXPECT_EQ(view->world_size, kWorldSize - 1);
        return;
      }
      EXPECT_EQ(view.status().code(), absl::StatusCode::kAborted) << view.status();
      EXPECT_THAT(std::string(view.status().message()), HasSubstr(members_[1 - rank]->member()));
      Accept(rank);
    });
    EXPECT_EQ(won_count, 1);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(members_[rank]->generation(), 2);
  }
}

TEST_F(TwoProposalsTest, ARefusalFailsTheProposalAndTheGroupGoesOn) {
  ASSERT_NO_FATAL_FAILURE(Join("refused"));
  testing::OnThreads(4, [&](int rank) {
    if (rank == 0) {
      const absl::StatusOr<client::ViewResult> view = members_[0]->ProposeView({{4, 4}}, {});
      EXPECT_FALSE(view.ok());
      EXPECT_THAT(std::string(view.status().message()), HasSubstr("not now"));
      return;
    }
    const std::optional<client::GroupEvent> event = events_[rank].Await(EventKind::kViewProposed);
    ASSERT_TRUE(event.has_value() && event->proposal.has_value());
    const absl::StatusOr<client::ViewResult> view =
        members_[rank]->AckView(event->proposal->id, rank != 2, "not now");
    EXPECT_FALSE(rank != 2 && view.ok());
  });
  testing::OnThreads(kWorldSize, [&](int rank) {
    const absl::Status status = members_[rank]->Barrier();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(members_[rank]->generation(), 1);
  });
}

}  // namespace
}  // namespace cohort
