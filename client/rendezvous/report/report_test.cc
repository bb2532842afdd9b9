#include "client/rendezvous/report/report.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/error_ranks.h"
#include "base/rpc/status_conversion.h"
#include "client/rendezvous/report/report_codec.h"
#include "cohort/v1/common.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::HasSubstr;

TEST(MissingReport, IsOneLineWithNames) {
  MissingReport report;
  report.expected_count = 1000;
  report.arrived_count = 996;
  report.missing = {{3, 3}, {7, 9}};
  MissingMember& worker = report.details.emplace_back();
  worker.rank = 3;
  worker.member = "worker-3";
  worker.host = "host-a";
  worker.last_heard = absl::Milliseconds(400);
  worker.attached = true;
  report.details.emplace_back().rank = 7;
  EXPECT_EQ(ToString(report),
            "4 of 1000 missing: ranks 3,7-9 (worker-3 on host-a, last heard 0.4s ago (attached); "
            "rank 7 not taken; ...)");
}

TEST(Cause, NamesRankZeroAndNoRank) {
  v1::Cause cause;
  EXPECT_EQ(FromProto(cause).rank, std::nullopt);
  cause.set_rank(0);
  EXPECT_EQ(FromProto(cause).rank, 0);
}

TEST(MissingReport, AnEmptyReportClaimsNothing) {
  EXPECT_EQ(ToString(MissingReport()), "the missing ranks are not known");
}

TEST(MissingReport, StaysBelowOneKilobyte) {
  MissingReport report;
  report.expected_count = 16384;
  for (int rank = 0; rank < 16384; rank += 2) report.missing.push_back({rank, rank});
  for (int i = 0; i < 64; ++i) {
    MissingMember& member = report.details.emplace_back();
    member.rank = 2 * i;
    member.member = std::string(128, 'm');
    member.host = std::string(256, 'h');
  }
  EXPECT_LE(ToString(report).size(), 1024u);
}

TEST(AwayReport, SaysWhatIsWrong) {
  AwayReport report;
  report.address = "host:1";
  EXPECT_EQ(ToString(report), "the coordinator at host:1 cannot be reached");
  report.detail = "Connection refused";
  EXPECT_EQ(ToString(report), "the coordinator at host:1 cannot be reached (Connection refused)");
  report.kind = AwayKind::kSilent;
  EXPECT_EQ(ToString(report), "the coordinator at host:1 does not answer (Connection refused)");
  report.kind = AwayKind::kDraining;
  EXPECT_EQ(ToString(report), "the coordinator at host:1 is draining");
}

TEST(ErrorInfo, IsEmptyWhenNothingWasSent) {
  const ErrorInfo info = GetErrorInfo(absl::AbortedError("x"));
  EXPECT_TRUE(info.missing.empty());
  EXPECT_EQ(info.group, "");
  EXPECT_EQ(info.cause.kind, CauseKind::kNone);
}

TEST(ErrorInfo, HasTheRanksThatTravelled) {
  const auto travelled = [](const absl::Status& status) {
    return FromGrpcStatus(ToGrpcStatus(WithRanksInDetails(status)));
  };
  const absl::Status late = travelled(MissingRanksError("late", {{1, 1}, {4, 7}}));
  EXPECT_EQ(GetErrorInfo(late).missing, std::vector<RankRange>({{1, 1}, {4, 7}}));
  EXPECT_EQ(GetErrorInfo(late).cause.rank, std::nullopt);
  const absl::Status gone = travelled(WithCulprit(absl::AbortedError("gone"), 3));
  EXPECT_EQ(GetErrorInfo(gone).cause.rank, 3);
  EXPECT_EQ(GetErrorInfo(gone).cause.kind, CauseKind::kNone);
  EXPECT_EQ(travelled(absl::AbortedError("x")), absl::AbortedError("x"));

  // Beside what the coordinator has said.
  v1::ErrorDetails details = MakeErrorDetails("g", 3, "join");
  details.mutable_cause()->set_rank(5);
  const ErrorInfo both = GetErrorInfo(travelled(WithMissingRanks(
      WithCulprit(StatusWithDetails(absl::StatusCode::kAborted, "x", details), 2), {{1, 2}})));
  EXPECT_EQ(both.operation, "join");
  EXPECT_EQ(both.cause.rank, 5);
  EXPECT_EQ(both.missing, std::vector<RankRange>({{1, 2}}));
}

TEST(ErrorInfo, HasTheFirstMissingRanksIfAllAreTooLong) {
  std::vector<RankRange> ranges;
  constexpr int kFar = 1 << 30;
  for (int i = 0; i < 1000; ++i) ranges.push_back({kFar + 3 * i, kFar + 3 * i + 1});
  v1::ErrorDetails details = MakeErrorDetails(std::string(128, 'g'), int64_t{1} << 62, "barrier");
  details.mutable_cause()->set_detail(std::string(512, 'd'));
  const ErrorInfo info = GetErrorInfo(FromGrpcStatus(ToGrpcStatus(WithRanksInDetails(
      WithMissingRanks(StatusWithDetails(absl::StatusCode::kAborted, "x", details), ranges)))));
  ranges.resize(64);
  EXPECT_EQ(info.missing, ranges);
}

TEST(ErrorDetails, ArePrintedAsText) {
  PrintErrorDetailsAsText();
  v1::ErrorDetails details;
  details.set_group("g");
  details.set_current_generation(3);
  details.set_operation("barrier \"step\" #812");
  details.mutable_cause()->set_kind(v1::CAUSE_KIND_EVICTED);
  details.mutable_cause()->set_member("rank-3");
  details.mutable_cause()->set_generation(2);
  details.mutable_cause()->set_detail("broken disk");
  absl::Status status = StatusWithDetails(absl::StatusCode::kAborted, "it is over", details);
  EXPECT_EQ(status.ToString(),
            "ABORTED: it is over [cohort.v1.ErrorDetails='group g; generation 3; barrier "
            "\"step\" #812; cause: generation 2: member rank-3 evicted: broken disk']");
  status = WithRanksInDetails(WithCulprit(MissingRanksError("late", {{1, 1}, {4, 7}}), 4));
  EXPECT_THAT(status.ToString(),
              HasSubstr("cohort.v1.ErrorDetails='culprit: rank 4; missing: ranks 1,4-7'"));
  status = absl::AbortedError("x");
  status.SetPayload("other", absl::Cord("\x01"));
  EXPECT_EQ(status.ToString(), "ABORTED: x [other='\\x01']");
}

}  // namespace
}  // namespace cohort::client
