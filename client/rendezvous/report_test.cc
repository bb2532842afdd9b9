#include "client/rendezvous/report.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

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
  report.details.emplace_back().rank = 7;
  EXPECT_EQ(ToString(report),
            "4 of 1000 missing: ranks 3,7-9 (worker-3 on host-a, last heard 0.4s ago; rank 7 not "
            "taken; ...)");
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

TEST(ErrorInfo, IsEmptyWhenNothingWasSent) {
  const ErrorInfo info = GetErrorInfo(absl::AbortedError("x"));
  EXPECT_EQ(info.group, "");
  EXPECT_EQ(info.cause.kind, CauseKind::kNone);
}

}  // namespace
}  // namespace cohort::client
