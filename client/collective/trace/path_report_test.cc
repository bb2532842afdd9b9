#include "client/collective/trace/path_report.h"

#include "gtest/gtest.h"

namespace cohort::client {
namespace {

TEST(PathReportTest, ComesBackAsItWas) {
  const PathReport report = {3, {{0, 2}, {1}}, {"rank 1 is a process of user 7"}};
  const std::optional<PathReport> read = DecodePathReport(EncodePathReport(report));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->generation, 3);
  EXPECT_EQ(read->hosts, report.hosts);
  EXPECT_EQ(read->why_not, report.why_not);
}

TEST(PathReportTest, OtherBytesAreNoReport) {
  for (const char* bytes :
       {"", "{}", "[1]", "\xff", R"({"generation":1,"hosts":[["a"]],"why_not":[]})",
        R"({"generation":1,"hosts":3,"why_not":[]})"}) {
    EXPECT_FALSE(DecodePathReport(bytes).has_value()) << bytes;
  }
}

TEST(PathReportTest, TextThatIsNoUtf8IsCarriedAllTheSame) {
  EXPECT_TRUE(DecodePathReport(EncodePathReport({1, {{0}}, {"\xff"}})).has_value());
}

TEST(PathReportTest, IsReadByPeople) {
  EXPECT_EQ(FormatPathReport({1, {{0}}, {}}), "one rank alone");
  EXPECT_EQ(FormatPathReport({1, {{0, 1, 2}}, {}}), "shared memory: ranks 0-2");
  EXPECT_EQ(FormatPathReport({1, {{0}, {1}}, {}}), "TCP between all ranks");
  EXPECT_EQ(FormatPathReport({1, {{0, 1}, {2, 4}, {3}}, {}}),
            "shared memory: ranks 0-1; ranks 2,4. TCP between all others");
}

}  // namespace
}  // namespace cohort::client
