// The client's own work in a call: repeats, deadlines, receipts, numbers, blobs. Against a scripted
// coordinator; tests of several members are in tests/rendezvous. One file, though long: all tests
// script that coordinator with one fixture.
#include "client/rendezvous/process_group/process_group.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/rendezvous/testing/process_group_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ProcessGroupTest = ProcessGroupTestBase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

std::vector<int64_t> ReceiptsOf(const SeenCall& call) {
  return {call.scope.acknowledged_receipts().begin(), call.scope.acknowledged_receipts().end()};
}

TEST_F(ProcessGroupTest, TakesTheRankItAsksFor) {
  ProcessGroupOptions options = Options();
  options.rank = 2;
  const auto group = Join(options);
  EXPECT_EQ(group->rank(), 2);
  EXPECT_EQ(group->world_size(), 4);
  EXPECT_EQ(group->generation(), 1);
  EXPECT_EQ(group->member(), "rank-2");
}

// Two containers may have the same host name, and processes of the same number.
TEST_F(ProcessGroupTest, WithoutARankTheNameIsOfThisProcessAlone) {
  ProcessGroupOptions options = Options();
  options.member.clear();
  options.rank.reset();
  const auto group = Join(options);
  EXPECT_THAT(group->member(), MatchesRegex(".+-[0-9]+-[0-9a-f]{8}"));
  EXPECT_EQ(Join(options)->member(), group->member());
}

TEST_F(ProcessGroupTest, RefusesWhatCannotBeRightWithoutAsking) {
  ProcessGroupOptions options = Options();
  options.rank = 4;
  EXPECT_EQ(ProcessGroup::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  const auto group = Join();
  EXPECT_EQ(group->Send("x", 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group->Receive(7).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(fake_.Seen("Send"), IsEmpty());
}

TEST_F(ProcessGroupTest, RepeatsAsOneOperationInLessAndLessTime) {
  const auto group = Join();
  fake_.FailNext("Barrier", {Away(), Away()});
  ASSERT_TRUE(group->Barrier().ok());
  const auto seen = fake_.Seen("Barrier");
  ASSERT_THAT(seen, SizeIs(3));
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(seen[i].scope.operation_id(), seen[0].scope.operation_id());
    EXPECT_EQ(seen[i].number, 1);
    EXPECT_LT(seen[i].wait, seen[i - 1].wait);
    // gRPC rounds deadlines up on the wire.
    EXPECT_LE(seen[i].time_left, seen[i - 1].time_left + absl::Milliseconds(10));
  }
  EXPECT_THAT(seen[0].scope.operation_id(), SizeIs(16));
  EXPECT_LE(seen[0].wait, absl::Seconds(30));
  EXPECT_GT(seen[0].time_left, seen[0].wait);
  ASSERT_TRUE(group->Barrier().ok());
  EXPECT_NE(fake_.Seen("Barrier")[3].scope.operation_id(), seen[0].scope.operation_id());
}

TEST_F(ProcessGroupTest, SaysWhereAndHowOftenItTriedInVain) {
  fake_.Stop();
  ProcessGroupOptions options = Options();
  options.join_timeout = absl::Milliseconds(300);
  const absl::Status status = ProcessGroup::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr(options.connection.address), HasSubstr("join"),
                             HasSubstr("attempts")));
}

TEST_F(ProcessGroupTest, JoiningAndCallsHaveTimeoutsOfTheirOwn) {
  ProcessGroupOptions options = Options();
  options.join_timeout = absl::Seconds(40);
  options.timeout = absl::Seconds(400);
  const auto group = Join(options);
  ASSERT_TRUE(group->Send("x", 1).ok());
  // The gRPC deadline is two seconds later.
  EXPECT_LE(fake_.Seen("Join")[0].time_left, absl::Seconds(43));
  EXPECT_GT(fake_.Seen("Send")[0].time_left, absl::Seconds(43));
  EXPECT_LE(fake_.Seen("Send")[0].time_left, absl::Seconds(403));
}

TEST_F(ProcessGroupTest, DoesNotRetryErrors) {
  const auto group = Join();
  fake_.FailNext("Barrier", {Wrong()});
  EXPECT_EQ(group->Barrier().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(fake_.Seen("Barrier"), SizeIs(1));
}

TEST_F(ProcessGroupTest, SaysThatTheServerIsNoCoordinator) {
  fake_.FailNext("Join", {grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                                       "Received http2 header with status: 404"),
                          grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                                       "Received http2 header with status: 403")});
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnimplemented, absl::StatusCode::kPermissionDenied}) {
    const absl::Status status = ProcessGroup::Create(Options()).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(fake_.address()), HasSubstr("is no Cohort coordinator"),
                               HasSubstr("http2 header with status: 40")));
  }
}

TEST_F(ProcessGroupTest, ReceiptsRideUntilTheyArrived) {
  const auto group = Join();
  fake_.set_receipt(7);
  ASSERT_TRUE(group->Receive(1).ok());
  fake_.set_receipt(0);
  fake_.FailNext("Send", {Wrong()});
  EXPECT_FALSE(group->Send("x", 1).ok());
  EXPECT_TRUE(group->Send("x", 1).ok());
  EXPECT_TRUE(group->Send("x", 1).ok());
  const auto seen = fake_.Seen("Send");
  EXPECT_THAT(ReceiptsOf(seen[0]), ElementsAre(7));
  EXPECT_THAT(ReceiptsOf(seen[1]), ElementsAre(7));
  EXPECT_THAT(ReceiptsOf(seen[2]), IsEmpty());
}

TEST_F(ProcessGroupTest, AcknowledgesWithoutAnotherCall) {
  const auto group = Join();
  fake_.set_receipt(9);
  ASSERT_TRUE(group->AllGather("x").ok());
  ASSERT_TRUE(fake_.AwaitSeen("KeepAlive", 1));
  EXPECT_THAT(ReceiptsOf(fake_.Seen("KeepAlive")[0]), ElementsAre(9));
  // So do later receipts, and those that come while a renewal is on its way.
  fake_.Hold("KeepAlive", true);
  fake_.set_receipt(10);
  ASSERT_TRUE(group->AllGather("x").ok());
  ASSERT_TRUE(fake_.AwaitSeen("KeepAlive", 2));
  EXPECT_THAT(ReceiptsOf(fake_.Seen("KeepAlive")[1]), ElementsAre(10));
  fake_.set_receipt(11);
  ASSERT_TRUE(group->AllGather("x").ok());
  fake_.Hold("KeepAlive", false);
  ASSERT_TRUE(fake_.AwaitSeen("KeepAlive", 3));
  EXPECT_THAT(ReceiptsOf(fake_.Seen("KeepAlive")[2]), ElementsAre(11));
}

TEST_F(ProcessGroupTest, CountsRoundsOfAllKindsUnderOneName) {
  const auto group = Join();
  RoundOptions step;
  step.name = "step";
  EXPECT_TRUE(group->Barrier().ok());
  EXPECT_TRUE(group->AllGather("x").ok());
  EXPECT_TRUE(group->Barrier(step).ok());
  EXPECT_TRUE(group->Vote(1, VoteOp::kAnd).ok());
  EXPECT_EQ(fake_.Seen("Barrier")[0].number, 1);
  EXPECT_EQ(fake_.Seen("AllGather")[0].number, 2);
  EXPECT_EQ(fake_.Seen("Barrier")[1].number, 1);
  EXPECT_EQ(fake_.Seen("Vote")[0].number, 3);
}

TEST_F(ProcessGroupTest, TakesPartInTheSameRoundAfterAnError) {
  const auto group = Join();
  fake_.FailNext("Barrier", {Wrong()});
  EXPECT_FALSE(group->Barrier().ok());
  EXPECT_TRUE(group->Barrier().ok());
  EXPECT_EQ(fake_.Seen("Barrier")[1].number, 1);
}

TEST_F(ProcessGroupTest, NamesTheMissingMembers) {
  const auto group = Join();
  v1::RoundResult result;
  result.set_outcome(v1::ROUND_OUTCOME_TIMED_OUT);
  result.set_next_number(2);
  v1::MissingReport& missing = *result.mutable_missing();
  missing.set_expected_count(4);
  missing.set_arrived_count(3);
  missing.add_missing()->set_first(3);
  missing.mutable_missing(0)->set_last(3);
  missing.add_details()->set_rank(3);
  missing.mutable_details(0)->set_member("worker-3");
  fake_.EndRounds({result});
  RoundReport report;
  const absl::Status status = group->Barrier({}, &report);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("1 of 4 missing: rank 3"), HasSubstr("worker-3"),
                             HasSubstr("barrier \"\" #1")));
  EXPECT_EQ(report.number, 1);
  EXPECT_THAT(report.missing.missing, ElementsAre(RankRange{3, 3}));
  EXPECT_EQ(GetErrorInfo(status).operation, "barrier \"\" #1");
  EXPECT_TRUE(group->Barrier().ok());
  EXPECT_EQ(fake_.Seen("Barrier")[1].number, 2);
}

v1::RoundResult LateResult(int64_t number, int64_t next) {
  v1::RoundResult result;
  result.set_outcome(v1::ROUND_OUTCOME_TIMED_OUT);
  result.set_number(number);
  result.set_next_number(next);
  result.set_late(true);
  result.set_reason("it timed out before rank 0 came");
  result.mutable_missing()->set_expected_count(4);
  result.mutable_missing()->set_arrived_count(3);
  v1::RankRange* missing = result.mutable_missing()->add_missing();
  missing->set_first(0);
  missing->set_last(0);
  return result;
}

TEST_F(ProcessGroupTest, ALateMemberLearnsTheMissedRoundAndTheNumberOfTheOthers) {
  const auto group = Join();
  fake_.EndRounds({LateResult(1, 4)});
  RoundReport report;
  const absl::Status status = group->Barrier({}, &report);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(status.message()),
      testing::AllOf(HasSubstr("barrier \"\" #1 of group g"), HasSubstr("before rank 0 came"),
                     HasSubstr("1 of 4 missing: rank 0"), HasSubstr("#4")));
  EXPECT_EQ(report.missed_number, 1);
  EXPECT_TRUE(group->Barrier({}, &report).ok());
  EXPECT_EQ(report.missed_number, 0);
  EXPECT_EQ(fake_.Seen("Barrier")[1].number, 4);
}

TEST_F(ProcessGroupTest, ALateMemberCatchesUpInTheSameCall) {
  const auto group = Join();
  fake_.EndRounds({LateResult(1, 4), LateResult(4, 5)});
  RoundOptions options;
  options.catch_up = true;
  RoundReport report;
  const absl::Status status = group->Barrier(options, &report);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(report.missed_number, 1);
  EXPECT_EQ(report.number, 5);
  const auto seen = fake_.Seen("Barrier");
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_EQ(seen[1].number, 4);
  EXPECT_EQ(seen[2].number, 5);
  EXPECT_LE(seen[2].wait, seen[0].wait);  // one timeout for all
}

TEST_F(ProcessGroupTest, AMemberThatWasThereDoesNotCallAgain) {
  const auto group = Join();
  v1::RoundResult result = LateResult(1, 2);
  result.set_late(false);
  fake_.EndRounds({result});
  RoundOptions options;
  options.catch_up = true;
  EXPECT_EQ(group->Barrier(options).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(fake_.Seen("Barrier"), SizeIs(1));
}

TEST_F(ProcessGroupTest, GoesOnAfterARoundWhoseValueIsGone) {
  const auto group = Join();
  fake_.FailNext("Barrier", {grpc::Status(grpc::StatusCode::DATA_LOSS, "its values expired")});
  EXPECT_EQ(group->Barrier().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(group->Barrier().ok());
  EXPECT_EQ(fake_.Seen("Barrier")[1].number, 2);
}

TEST_F(ProcessGroupTest, DistinguishesAMismatchFromACancellation) {
  const auto group = Join();
  v1::RoundResult mismatch;
  mismatch.set_outcome(v1::ROUND_OUTCOME_MISMATCH);
  mismatch.set_next_number(2);
  mismatch.set_reason("rank 0 brings a, rank 1 brings b");
  v1::RoundResult cancelled;
  cancelled.set_outcome(v1::ROUND_OUTCOME_CANCELLED);
  cancelled.set_next_number(3);
  cancelled.set_reason("shutting down");
  fake_.EndRounds({mismatch, cancelled});
  const absl::Status first = group->Barrier();
  EXPECT_EQ(first.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(first.message()),
              HasSubstr("group g: mismatch: rank 0 brings a, rank 1 brings b"));
  const absl::Status second = group->Barrier();
  EXPECT_EQ(second.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(second.message()), HasSubstr("group g: cancelled: shutting down"));
}

TEST_F(ProcessGroupTest, CarriesLargeValuesBesideTheCall) {
  const auto group = Join();
  std::string large(3500000, 'a');
  large[3000000] = 'b';
  fake_.BreakFirstDownloadAfter(1 << 20);
  const auto values = group->AllGather(large);
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_THAT(*values, SizeIs(1));
  EXPECT_TRUE((*values)[0] == large);
  const auto downloads = fake_.Seen("Download");
  ASSERT_THAT(downloads, SizeIs(2));
  EXPECT_EQ(downloads[0].offset, 0);
  EXPECT_GE(downloads[1].offset, 1 << 20) << "began anew";
}

TEST_F(ProcessGroupTest, TheCoordinatorSaysWhichValuesAreLarge) {
  fake_.set_max_inline_bytes(100);
  const auto group = Join();
  ASSERT_TRUE(group->AllGather(std::string(100, 'a')).ok());
  EXPECT_THAT(fake_.Seen("Upload"), SizeIs(0));
  ASSERT_TRUE(group->AllGather(std::string(101, 'a')).ok());
  EXPECT_THAT(fake_.Seen("Upload"), SizeIs(1));
}

TEST_F(ProcessGroupTest, NoticesDamageOnTheWay) {
  const auto group = Join();
  fake_.DamageDownloads(1234567);
  EXPECT_EQ(group->AllGather(std::string(2 << 20, 'a')).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(ProcessGroupTest, UploadsAgainWhenTheBlobIsGone) {
  const auto group = Join();
  fake_.FailNext("AllGather", {grpc::Status(grpc::StatusCode::NOT_FOUND, "blob 1 is not there")});
  const auto values = group->AllGather(std::string(2 << 20, 'a'));
  EXPECT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(fake_.Seen("Upload"), SizeIs(2));
  fake_.FailNext("AllGather", {grpc::Status(grpc::StatusCode::NOT_FOUND, "no session"),
                               grpc::Status(grpc::StatusCode::NOT_FOUND, "no session")});
  EXPECT_EQ(group->AllGather(std::string(2 << 20, 'a')).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ProcessGroupTest, AsyncFormsDoTheSame) {
  const auto group = Join();
  fake_.FailNext("Barrier", {Away()});
  struct Results {
    absl::Notification barrier, gathered, sent, received;
    absl::Status barrier_status, sent_status;
    absl::StatusOr<ObjectList> values;
    absl::StatusOr<ReceivedObject> object;
  } results;
  group->async().Barrier({}, [&](absl::Status status, const RoundReport&) {
    results.barrier_status = std::move(status);
    results.barrier.Notify();
  });
  group->async().AllGather(std::string(2 << 20, 'z'), {}, [&](auto values) {
    results.values = std::move(values);
    results.gathered.Notify();
  });
  group->async().Send("x", 1, "t", {}, [&](absl::Status status) {
    results.sent_status = std::move(status);
    results.sent.Notify();
  });
  group->async().Receive(2, "t", {kLong, nullptr}, [&](auto object) {
    results.object = std::move(object);
    results.received.Notify();
  });
  for (absl::Notification* done :
       {&results.barrier, &results.gathered, &results.sent, &results.received}) {
    ASSERT_TRUE(done->WaitForNotificationWithTimeout(kLong));
  }
  EXPECT_TRUE(results.barrier_status.ok()) << results.barrier_status;
  EXPECT_TRUE(results.sent_status.ok()) << results.sent_status;
  ASSERT_TRUE(results.values.ok()) << results.values.status();
  EXPECT_TRUE((*results.values)[0] == std::string(2 << 20, 'z'));
  ASSERT_TRUE(results.object.ok()) << results.object.status();
  EXPECT_EQ(results.object->bytes, "object");
  EXPECT_EQ(results.object->source, 2);
  EXPECT_EQ(fake_.Seen("Barrier")[0].number, 1);
  EXPECT_EQ(fake_.Seen("AllGather")[0].number, 2);
}

TEST_F(ProcessGroupTest, TellsWhoIsMissingWhileItWaits) {
  const auto group = Join();
  v1::MissingReport missing;
  missing.set_expected_count(4);
  missing.set_arrived_count(1);
  fake_.set_missing("barrier \"step\" #1", missing);
  fake_.Hold("Barrier", true);
  RoundOptions options;
  options.name = "step";
  options.on_waiting = [&](const MissingReport& report) {
    EXPECT_EQ(report.expected_count, 4);
    EXPECT_EQ(report.arrived_count, 1);
    fake_.Hold("Barrier", false);
  };
  EXPECT_TRUE(group->Barrier(options).ok());
}

TEST_F(ProcessGroupTest, CreatesWithoutBlocking) {
  fake_.FailNext("Join", {Away()});
  absl::Notification done;
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group;
  ProcessGroup::CreateAsync(Options(), [&](auto created) {
    group = std::move(created);
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kLong));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_TRUE((*group)->Barrier().ok());
  const auto joins = fake_.Seen("Join");
  EXPECT_EQ(joins[0].scope.operation_id(), joins[1].scope.operation_id());
}

}  // namespace
}  // namespace cohort::client
