#include "client/cli/output/printer.h"

#include <cerrno>
#include <sstream>
#include <streambuf>

#include "client/cli/output/waiting_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::HasSubstr;

client::MissingReport TwoOfFour() {
  client::MissingReport report;
  report.expected_count = 4;
  report.arrived_count = 2;
  report.arrived = {{0, 1}};
  report.missing = {{2, 3}};
  client::MissingMember member;
  member.rank = 2;
  member.member = "rank-2";
  member.host = "host-a";
  member.last_heard = absl::Milliseconds(400);
  report.details = {member};
  return report;
}

TEST(Printer, JsonIsOneLineInTheOrderOfItsKeys) {
  std::ostringstream out;
  std::ostringstream err;
  Printer printer(out, err, {});
  printer.PrintJson({{"b", 1}, {"a", "x\ny"}});
  EXPECT_EQ(out.str(), "{\"b\":1,\"a\":\"x\\ny\"}\n");
  EXPECT_EQ(err.str(), "");
}

TEST(Printer, JsonSurvivesBytesThatAreNoText) {
  std::ostringstream out;
  Printer printer(out, out, {});
  Json json = {{"message", "a\xff"}};
  SetText(json, "value", "b\xfe");
  SetText(json, "other", "text");
  printer.PrintJson(json);
  EXPECT_EQ(out.str(),
            "{\"message\":\"a\xef\xbf\xbd\",\"value_base64\":\"Yv4=\",\"other\":\"text\"}\n");
}

TEST(Printer, ValuesAreExactInPipesAndEndALineOnTerminals) {
  std::ostringstream pipe;
  Printer(pipe, pipe, {0, 80}).PrintValue("v");
  EXPECT_EQ(pipe.str(), "v");
  std::ostringstream terminal;
  Printer(terminal, terminal, {80, 80}).PrintValue("v");
  EXPECT_EQ(terminal.str(), "v\n");
}

TEST(Printer, NoticesThatItsReaderHasGone) {
  class ClosedPipe : public std::streambuf {
    int_type overflow(int_type) override {
      errno = EPIPE;
      return traits_type::eof();
    }
  };
  ClosedPipe buffer;
  std::ostream out(&buffer);
  Printer printer(out, out, {});
  EXPECT_TRUE(printer.out_ok());
  printer.PrintText("x");
  EXPECT_FALSE(printer.out_ok());
  EXPECT_EQ(printer.out_errno(), EPIPE);
}

TEST(ReportJson, MissingReportIsExact) {
  EXPECT_EQ(Dump(ToJson(TwoOfFour())),
            R"({"expected_count":4,"arrived_count":2,"arrived":[[0,1]],"missing":[[2,3]],)"
            R"("details":[{"rank":2,"member":"rank-2","host":"host-a","last_heard_seconds":0.4,)"
            R"("attached":false}],)"
            R"("since_first_seconds":0.0,"skew_seconds":0.0})");
}

TEST(ReportJson, KeyEventsSayWhatHappened) {
  client::KeyEvent event;
  event.key_value.key = "k";
  event.key_value.value = "v";
  event.key_value.revision = 7;
  event.key_value.created_revision = 5;
  EXPECT_EQ(Dump(ToJson(event)),
            R"({"event":"put","key":"k","value":"v","revision":7,"created_revision":5})");
  event.deleted = true;
  EXPECT_EQ(Dump(ToJson(event)), R"({"event":"deleted","key":"k","revision":7})");
  event.expired = true;
  EXPECT_EQ(Dump(ToJson(event)), R"({"event":"expired","key":"k","revision":7})");
}

// JSON of a hostile name stays JSON, and does not control the terminal.
TEST(JsonTest, EscapesWhatSteersATerminal) {
  EXPECT_EQ(Dump({{"member",
                   "txt\xe2\x80\xae"
                   "exe\x7f"}}),
            R"({"member":"txt\u202eexe\u007f"})");
  EXPECT_EQ(Dump({{"member", "\xc3\xa4"}}), "{\"member\":\"\xc3\xa4\"}");
}

TEST(WaitingLine, SaysInAFileOnlyWhatChanged) {
  std::ostringstream err;
  Printer printer(err, err, {});
  WaitingLine line(printer, "barrier step");
  client::MissingReport report = TwoOfFour();
  line.Update(report);
  report.details[0].last_heard = absl::Seconds(2);
  line.Update(report);
  EXPECT_EQ(err.str(),
            "waiting for barrier step: 2 of 4 here (ranks 0-1), missing ranks 2-3 "
            "(rank-2 on host-a, last heard 400ms ago)\n");
  report.arrived = {{0, 2}};
  report.arrived_count = 3;
  report.missing = {{3, 3}};
  report.details.clear();
  line.Update(report);
  EXPECT_THAT(err.str(), HasSubstr("ago)\nwaiting for barrier step: 3 of 4 here (ranks 0-2), "
                                   "missing rank 3\n"));
}

TEST(WaitingLine, BlamesNoRankWhileTheCoordinatorIsAway) {
  std::ostringstream err;
  Printer printer(err, err, {});
  WaitingLine line(printer, "barrier step");
  line.Update(TwoOfFour());
  err.str("");
  client::AwayReport away;
  away.address = "host:1";
  away.remaining = absl::Seconds(20);
  line.Update(away);
  away.remaining = absl::Seconds(19);
  line.Update(away);
  EXPECT_EQ(err.str(),
            "waiting for barrier step: the coordinator at host:1 cannot be reached; trying for 20s "
            "more\n");
  line.Update(TwoOfFour());
  EXPECT_THAT(err.str(), HasSubstr("more\nwaiting for barrier step: 2 of 4 here"));
}

TEST(WaitingLine, KeepsToOneLineOfATerminalAndClearsIt) {
  std::ostringstream err;
  Printer printer(err, err, {0, 31});
  {
    WaitingLine line(printer, "barrier step");
    line.Update(TwoOfFour());
    EXPECT_EQ(err.str(), "\r\x1b[Kwaiting for barrier step: 2 of");
  }
  EXPECT_EQ(err.str(), "\r\x1b[Kwaiting for barrier step: 2 of\r\x1b[K");
}

}  // namespace
}  // namespace cohort::cli
