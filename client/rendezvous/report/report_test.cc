#include "client/rendezvous/report/report.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/error_ranks.h"
#include "base/rpc/status_conversion.h"
#include "client/rendezvous/report/report_codec.h"
#include "cohort/v1/common.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::Pair;

// The plain value of a message of type M in text format.
template <typename M>
auto FromText(const std::string& text) {
  M message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return FromProto(message);
}

// Some records in text format, and matchers of their values.
constexpr char kCause[] = R"(
    kind: CAUSE_KIND_EVICTED member: "m" rank: 3 host: "h" detail: "d" generation: 4
    age { seconds: 5 nanos: 250000000 })";
auto IsCause() {
  return FieldsAre(CauseKind::kEvicted, "m", Optional(3), "h", "d", 4, absl::Milliseconds(5250));
}

constexpr char kMissing[] = R"(
    expected_count: 9 arrived_count: 7 arrived { first: 1 last: 7 }
    missing { first: 0 last: 0 } missing { first: 8 last: 8 }
    details {
      rank: 8 member: "m" host: "h" last_heard { seconds: 2 } last_operation: "barrier"
      last_operation_age { seconds: 3 } progress: 12 progress_operation: "step"
      progress_age { seconds: 4 } attached: true }
    details { rank: 0 }
    first_rank: 5 last_rank: 6 since_first { seconds: 7 } skew { seconds: 1 })";
auto IsMissing() {
  return FieldsAre(9, 7, ElementsAre(RankRange{1, 7}),
                   ElementsAre(RankRange{0, 0}, RankRange{8, 8}),
                   ElementsAre(FieldsAre(8, "m", "h", Optional(absl::Seconds(2)), true, "barrier",
                                         absl::Seconds(3), 12, "step", absl::Seconds(4)),
                               FieldsAre(0, "", "", std::nullopt, false, "", absl::ZeroDuration(),
                                         0, "", absl::ZeroDuration())),
                   Optional(5), Optional(6), absl::Seconds(7), absl::Seconds(1));
}

constexpr char kTensors[] = R"(
    moves_tensors: true
    last {
      generation: 4 number: 12 collective: "broadcast" state: "done" peer: 2
      begun { seconds: 6 } ended { seconds: 5 } }
    open {
      generation: 3 number: 11 collective: "all_reduce" state: "running" peer: -1
      begun { seconds: 8 } }
    waits_for { first: 1 last: 2 })";
auto IsTensors() {
  return FieldsAre(true,
                   Optional(FieldsAre(4, 12, Collective::kBroadcast, "done", 2, absl::Seconds(6),
                                      Optional(absl::Seconds(5)))),
                   Optional(FieldsAre(3, 11, Collective::kAllReduce, "running", -1,
                                      absl::Seconds(8), std::nullopt)),
                   ElementsAre(RankRange{1, 2}));
}

constexpr char kProposal[] = R"(
    proposal: 21 proposer: "m" base_generation: 4 remove { first: 2 last: 3 } add: "n" add: "o"
    world_size: 6)";
auto IsProposal() {
  return FieldsAre(21, "m", 4, ElementsAre(RankRange{2, 3}), ElementsAre("n", "o"), 6);
}

TEST(ReportCodec, AReportOfMissingRanksHasEachField) {
  const WhoIsMissingReport report = FromText<v1::WhoIsMissingResponse>(absl::StrCat(
      R"(group: "g" generation: 4 state: GROUP_STATE_BROKEN world_size: 9 covers_tensors: true
      cause {)",
      kCause, R"(}
      waits { operation: "vote" age { seconds: 1 } remaining { seconds: 2 } missing {)",
      kMissing,
      R"(} }
      inits {
        name: "n"
        ranks { rank: 2 member: "m" phase: "p" detail: "d" age { seconds: 3 } } }
      tensor_waits {
        operation: "all_reduce #42" age { seconds: 5 } mismatch: "rank 2 called broadcast"
        inside { first: 1 last: 2 } waited_for { first: 3 last: 4 } missing {)",
      kMissing, R"(} }
      ranks {
        rank: 5 member: "m" host: "h" last_heard { seconds: 6 } reported { seconds: 7 }
        tensors {)",
      kTensors, R"(} }
      ranks { rank: 6 }
      unanswered { first: 5 last: 5 } unknown { first: 6 last: 8 })"));
  EXPECT_THAT(
      report,
      FieldsAre(
          "g", 4, GroupState::kBroken, IsCause(), 9,
          ElementsAre(FieldsAre("vote", IsMissing(), absl::Seconds(1), absl::Seconds(2))),
          ElementsAre(FieldsAre("n", ElementsAre(FieldsAre(2, "m", "p", "d", absl::Seconds(3))))),
          true,
          ElementsAre(FieldsAre("all_reduce #42", IsMissing(), absl::Seconds(5),
                                ElementsAre(RankRange{1, 2}), ElementsAre(RankRange{3, 4}),
                                "rank 2 called broadcast")),
          ElementsAre(FieldsAre(5, "m", "h", Optional(absl::Seconds(6)), Optional(absl::Seconds(7)),
                                IsTensors()),
                      FieldsAre(6, "", "", std::nullopt, std::nullopt, _)),
          ElementsAre(RankRange{5, 5}), ElementsAre(RankRange{6, 8})));
}

TEST(ReportCodec, AGroupHasEachField) {
  const GroupInfo group = FromText<v1::GetGroupResponse>(absl::StrCat(
      R"(group {
        name: "g" generation: 4 state: GROUP_STATE_BROKEN world_size: 5 revision: 31
        spec { min_members: 2 max_members: 8 lease { seconds: 30 } }
        members {
          name: "m" incarnation_hash: 77 rank: 3 state: MEMBER_STATE_SUSPECTED host: "h"
          addresses: "h:1" addresses: "h:2" labels { key: "k" value: "v" }
          last_heard { seconds: 2 } progress: 12 progress_operation: "step"
          progress_age { seconds: 4 } attached: true }
        bytes_held: 1000 waiter_count: 6 cause {)",
      kCause, "} } proposal {", kProposal, "}"));
  EXPECT_THAT(
      group, FieldsAre("g", 4, GroupState::kBroken, 2, 8, 5, 31, absl::Seconds(30),
                       ElementsAre(FieldsAre("m", 77, 3, MemberState::kSuspected, "h",
                                             ElementsAre("h:1", "h:2"), ElementsAre(Pair("k", "v")),
                                             absl::Seconds(2), true, 12, "step", absl::Seconds(4))),
                       IsCause(), 1000, 6, Optional(IsProposal())));
}

TEST(ReportCodec, EventsAndParkedCallsHaveEachField) {
  const GroupEvent event = FromText<v1::GroupEvent>(absl::StrCat(
      R"(revision: 31 kind: GROUP_EVENT_KIND_LOST generation: 4 member: "m" rank: 3 cause {)",
      kCause, "} proposal {", kProposal, "}"));
  EXPECT_THAT(event, FieldsAre(31, EventKind::kLost, 4, "m", Optional(3), IsCause(),
                               Optional(IsProposal())));
  const ParkedCall call = FromText<v1::ParkedCall>(R"(
      group: "g" member: "m" rank: 3 operation: "vote" age { seconds: 1 }
      remaining { seconds: 2 } waits_on { first: 0 last: 1 } waits_on { first: 4 last: 4 })");
  EXPECT_THAT(call, FieldsAre("g", "m", 3, "vote", absl::Seconds(1), absl::Seconds(2),
                              ElementsAre(RankRange{0, 1}, RankRange{4, 4})));
}

TEST(ReportCodec, AReportOfTensorsTravelsAsAWhole) {
  const TensorReport report = FromText<v1::TensorReport>(kTensors);
  EXPECT_THAT(report, IsTensors());
  v1::TensorReport travelled;
  ToProto(report, &travelled);
  EXPECT_THAT(FromProto(travelled), IsTensors());
}

TEST(ReportCodec, NumbersOfANewerCoordinatorAreTheDefaults) {
  for (const int number : {0, 99}) {
    v1::Member member;
    member.set_state(static_cast<v1::MemberState>(number));
    EXPECT_EQ(FromProto(member).state, MemberState::kJoining) << number;
    EXPECT_EQ(FromProto(static_cast<v1::GroupState>(number)), GroupState::kForming) << number;
    v1::GroupEvent event;
    event.set_kind(static_cast<v1::GroupEventKind>(number));
    EXPECT_EQ(FromProto(event).kind, EventKind::kJoined) << number;
    v1::Cause cause;
    cause.set_kind(static_cast<v1::CauseKind>(number));
    EXPECT_EQ(FromProto(cause).kind, CauseKind::kNone) << number;
  }
}

TEST(ReportCodec, TheLongestDurationsAreCut) {
  google::protobuf::Duration out;
  for (const absl::Duration duration :
       {absl::InfiniteDuration(), absl::Seconds(315576000001) + absl::Nanoseconds(7)}) {
    out.set_nanos(5);
    ToProto(duration, &out);
    EXPECT_EQ(FromProto(out), absl::Seconds(315576000000)) << duration;
  }
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Milliseconds(1250), absl::Seconds(315576000000)}) {
    ToProto(duration, &out);
    EXPECT_EQ(FromProto(out), duration);
  }
}

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
  // An error of this process alone has them, too.
  const ErrorInfo own = GetErrorInfo(WithCulprit(MissingRanksError("late", {{1, 1}}), 3));
  EXPECT_EQ(own.missing, std::vector<RankRange>({{1, 1}}));
  EXPECT_EQ(own.cause.rank, 3);

  // Beside what the coordinator has said.
  v1::ErrorDetails details = MakeErrorDetails("g", 3, "join");
  details.mutable_cause()->set_rank(5);
  const ErrorInfo both = GetErrorInfo(travelled(WithMissingRanks(
      WithCulprit(StatusWithDetails(absl::StatusCode::kAborted, "x", details), 2), {{1, 2}})));
  EXPECT_EQ(both.group, "g");
  EXPECT_EQ(both.current_generation, 3);
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
  details.mutable_cause()->set_rank(3);
  details.mutable_cause()->set_host("host-a");
  details.mutable_cause()->set_generation(2);
  details.mutable_cause()->set_detail("broken disk");
  absl::Status status = StatusWithDetails(absl::StatusCode::kAborted, "it is over", details);
  EXPECT_EQ(status.ToString(),
            "ABORTED: it is over [cohort.v1.ErrorDetails='group g; generation 3; barrier "
            "\"step\" #812; cause: generation 2: member rank-3 (rank 3) on host-a evicted: broken "
            "disk']");
  status = WithRanksInDetails(WithCulprit(MissingRanksError("late", {{1, 1}, {4, 7}}), 4));
  EXPECT_THAT(status.ToString(),
              HasSubstr("cohort.v1.ErrorDetails='culprit: rank 4; missing: ranks 1,4-7'"));
  status = absl::AbortedError("x");
  status.SetPayload("other", absl::Cord("\x01"));
  EXPECT_EQ(status.ToString(), "ABORTED: x [other='\\x01']");
}

}  // namespace
}  // namespace cohort::client
