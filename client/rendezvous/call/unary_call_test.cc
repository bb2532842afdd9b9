// Reports to a caller while the coordinator does not serve its call. Against a scripted coordinator
// that comes back on request.
#include "client/rendezvous/call/unary_call.h"

#include <thread>
#include <vector>

#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/testing/process_group_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class UnaryCallTest : public ProcessGroupTestBase {
 protected:
  // Options whose on_away checks and records its report, and calls `then`.
  ProcessGroupOptions WithOnAway(std::function<void()> then) {
    ProcessGroupOptions options = Options();
    options.connection.on_away = [this, then = std::move(then)](const AwayReport& report) {
      EXPECT_EQ(std::this_thread::get_id(), caller_);
      EXPECT_EQ(report.address, fake_.address());
      EXPECT_GT(report.remaining, absl::ZeroDuration());
      EXPECT_LT(report.remaining, kLong);
      reports_.push_back(report);
      then();
    };
    return options;
  }

  const std::thread::id caller_ = std::this_thread::get_id();
  std::vector<AwayReport> reports_;
};

TEST_F(UnaryCallTest, SaysThatTheCoordinatorCannotBeReached) {
  fake_.Stop();
  ASSERT_NE(Join(WithOnAway([this] { fake_.Start(); })), nullptr);
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, AwayKind::kUnreachable);
  EXPECT_EQ(reports_[0].detail, "Connection refused");
}

TEST_F(UnaryCallTest, SaysThatTheCoordinatorDrains) {
  // Pauses of 50 to 800 ms: the call is still refused after a second.
  fake_.FailNext("Join", std::vector<grpc::Status>(
                             6, grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining; no joins")));
  ASSERT_NE(Join(WithOnAway([] {})), nullptr);
  ASSERT_FALSE(reports_.empty());
  EXPECT_EQ(reports_[0].kind, AwayKind::kDraining);
}

TEST_F(UnaryCallTest, SaysThatAnAnswerThatNeedNotWaitDoesNotCome) {
  fake_.Hold("WhoIsMissing", true);
  const ProcessGroupOptions options = WithOnAway([this] { fake_.Hold("WhoIsMissing", false); });
  const auto admin = AdminClient::Create(*Connection::Create(options.connection), kLong);
  EXPECT_TRUE(admin->WhoIsMissing("g").ok());
  ASSERT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(reports_[0].kind, AwayKind::kSilent);
}

TEST_F(UnaryCallTest, SaysNothingOfACallThatWaitsForOthers) {
  const auto group = Join(WithOnAway([] {}));
  fake_.Hold("Barrier", true);
  v1::MissingReport missing;
  missing.set_expected_count(4);
  missing.set_arrived_count(3);
  fake_.set_missing("barrier \"\" #1", missing);
  RoundOptions round;
  round.timeout = kLong;
  int waiting = 0;
  round.on_waiting = [&](const MissingReport&) {
    ++waiting;
    fake_.Hold("Barrier", false);
  };
  EXPECT_TRUE(group->Barrier(round).ok());
  EXPECT_EQ(waiting, 1);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(UnaryCallTest, BlamesNoRankWhileTheCoordinatorIsAway) {
  const auto group = Join(WithOnAway([this] {
    fake_.Hold("Barrier", false);
    fake_.Start();
  }));
  fake_.Hold("Barrier", true);
  fake_.set_missing("barrier \"\" #1", v1::MissingReport());
  RoundOptions round;
  round.timeout = kLong;
  bool stopped = false;
  round.on_waiting = [&](const MissingReport&) {
    if (!std::exchange(stopped, true)) fake_.Stop();
  };
  EXPECT_TRUE(group->Barrier(round).ok());
  ASSERT_FALSE(reports_.empty());
  EXPECT_EQ(reports_[0].kind, AwayKind::kUnreachable);
}

TEST_F(UnaryCallTest, ACallThatNeedNotWaitEndsAtItsDeadline) {
  fake_.Hold("WhoIsMissing", true);
  const auto admin = AdminClient::Create(*Connection::Create(Options().connection), absl::Milliseconds(50));
  const Instant begin = Clock::Steady().Now();
  EXPECT_TRUE(absl::IsUnavailable(admin->WhoIsMissing("g").status()));
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Milliseconds(50) + kDeadlineMargin);
  fake_.Hold("WhoIsMissing", false);
}

// Otherwise the thread that brought the answer might drop the connection last, while the process
// ends.
TEST_F(UnaryCallTest, ACallThatHasReturnedDoesNotHoldTheConnection) {
  const auto connection = *Connection::Create(WithOnAway([] {}).connection);
  const auto admin = AdminClient::Create(connection, kLong);
  const long holders = connection.use_count();
  for (int call = 0; call < 500; ++call) {
    ASSERT_TRUE(admin->WhoIsMissing("g").ok());
    ASSERT_EQ(connection.use_count(), holders) << "call " << call;
  }
}

}  // namespace
}  // namespace cohort::client
