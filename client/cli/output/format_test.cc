#include "client/cli/output/format.h"

#include <string>

#include "client/cli/output/table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

TEST(Format, DurationsHaveTwoUnitsAtMost) {
  EXPECT_EQ(ShortDuration(absl::ZeroDuration()), "0s");
  EXPECT_EQ(ShortDuration(-absl::Seconds(1)), "0s");
  EXPECT_EQ(ShortDuration(absl::Microseconds(70)), "70us");
  EXPECT_EQ(ShortDuration(absl::Milliseconds(350)), "350ms");
  EXPECT_EQ(ShortDuration(absl::Milliseconds(4290)), "4.2s");
  EXPECT_EQ(ShortDuration(absl::Seconds(42)), "42s");
  EXPECT_EQ(ShortDuration(absl::Seconds(192)), "3m12s");
  EXPECT_EQ(ShortDuration(absl::Minutes(125)), "2h5m");
  EXPECT_EQ(ShortDuration(absl::Hours(76)), "3d4h");
  EXPECT_EQ(ShortDuration(absl::InfiniteDuration()), "never");
  EXPECT_EQ(FormatAge(absl::Seconds(42)), "42s ago");
  EXPECT_EQ(FormatAge(std::optional<absl::Duration>()), "never");
  EXPECT_EQ(FormatAge(absl::InfiniteDuration()), "never");
}

TEST(Format, BytesHaveBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(20 << 20), "20.0 MiB");
}

TEST(Format, ForeignTextCannotSteerATerminal) {
  EXPECT_EQ(Printable("plain"), "plain");
  EXPECT_EQ(Printable("a\x1b[2Jb\nc"), "a\\x1b[2Jb\\x0ac");
  EXPECT_EQ(Printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");  // CSI in one character
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // U+202E turns the line round
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a");           // an overlong newline
}

TEST(Format, CausesNameTheCulprit) {
  client::Cause cause;
  EXPECT_EQ(FormatCause(cause), "");
  cause.kind = client::CauseKind::kLeaseExpired;
  cause.rank = 3;
  cause.member = "rank-3";
  cause.host = "host-a";
  cause.age = absl::Seconds(12);
  cause.detail = "silent for 30s";
  EXPECT_EQ(FormatCause(cause),
            "lease_expired, rank 3 (rank-3 on host-a), 12s ago: silent for 30s");
}

TEST(Format, ProposalsSayWhatChanges) {
  client::ViewProposal proposal;
  proposal.id = 4;
  proposal.proposer = "rank-0";
  proposal.base_generation = 7;
  proposal.world_size = 3;
  const std::string whose = "id 4 by rank-0 on generation 7:";
  EXPECT_EQ(FormatProposal(proposal), whose + " world size 3");
  proposal.add = {"spare-1", "spare\n2"};
  EXPECT_EQ(FormatProposal(proposal), whose + " adds spare-1 spare\\x0a2, world size 3");
  proposal.remove = {{1, 1}, {4, 6}};
  EXPECT_EQ(FormatProposal(proposal),
            whose + " removes ranks 1,4-6, adds spare-1 spare\\x0a2, world size 3");
  proposal.add.clear();
  EXPECT_EQ(FormatProposal(proposal), whose + " removes ranks 1,4-6, world size 3");
}

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({">RANK", "MEMBER", "HOST"});
  table.AddRow({"3", "rank-3", "a"});
  table.AddRow({"1000", "m", ""});
  EXPECT_EQ(table.ToString(),
            "RANK  MEMBER  HOST\n"
            "   3  rank-3  a\n"
            "1000  m       -\n");
}

TEST(Table, CharactersCountOnceAndControlsAreEscaped) {
  Table table({"A", "B"});
  table.AddRow({"\xc3\xbc", "x"});
  table.AddRow({"\t", "y"});
  EXPECT_EQ(table.ToString(2),
            "  A     B\n"
            "  \xc3\xbc     x\n"
            "  \\x09  y\n");
}

TEST(Facts, AreAlignedAndLeaveOutTheEmpty) {
  EXPECT_EQ(FormatFacts({{"state", "active"}, {"cause", ""}, {"generation", "3"}}),
            "state       active\n"
            "generation  3\n");
}

}  // namespace
}  // namespace cohort::cli
