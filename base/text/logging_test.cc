#include "base/text/logging.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(LoggingTest, TextLine) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "T", LogLevel::kInfo, "group formed",
                          {{"group", "job/1"}, {"world_size", 8}, {"why", "two words"}}),
            "T info group formed group=job/1 world_size=8 why=\"two words\"");
}

TEST(LoggingTest, AFieldCannotForgeALine) {
  const std::string evil = "x\n2026 error all is lost \"";
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "T", LogLevel::kError, "a\nb", {{"m", evil}}),
            "T error a\\nb m=\"x\\n2026 error all is lost \\\"\"");
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, "T", LogLevel::kError, "a\nb", {{"m", evil}}),
            "{\"ts\":\"T\",\"level\":\"error\",\"msg\":\"a\\nb\","
            "\"m\":\"x\\n2026 error all is lost \\\"\"}");
}

TEST(LoggingTest, JsonKeepsNumbersAndRepairsBytes) {
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, "T", LogLevel::kWarning, "m",
                          {{"n", int64_t{1} << 40}, {"b", true}, {"d", 0.5}, {"s", "\xff"}}),
            "{\"ts\":\"T\",\"level\":\"warning\",\"msg\":\"m\",\"n\":1099511627776,\"b\":true,"
            "\"d\":0.5,\"s\":\"\\ufffd\"}");
}

// A name with U+202E would show the rest of its line in reverse.
TEST(LoggingTest, NothingSteersTheTerminal) {
  const std::string evil =
      "txt\xe2\x80\xae"
      "exe\x1b[2J\xc2\x9b\xff";
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "T", LogLevel::kError, evil, {{"m", evil}}),
            "T error txt\\xe2\\x80\\xaeexe\\x1b[2J\\xc2\\x9b\\xff"
            " m=\"txt\\xe2\\x80\\xaeexe\\x1b[2J\\xc2\\x9b\\xff\"");
  EXPECT_EQ(
      FormatLogLine(LogFormat::kJson, "T", LogLevel::kError, evil, {{"\xc3\xa4", "\xc3\xa4"}}),
      "{\"ts\":\"T\",\"level\":\"error\",\"msg\":\"txt\\u202eexe\\u001b[2J\\u009b\\ufffd\","
      "\"\xc3\xa4\":\"\xc3\xa4\"}");
}

// Clients cause lines, such as those of their groups.
TEST(LoggingTest, ATenantHasALimitOfLinesAndHidesNoOther) {
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 3 * kMaxLogLines; ++i) {
    Log(LogLevel::kWarning, "group lost", {{"tenant", "noisy"}, {"rank", i}});
  }
  Log(LogLevel::kWarning, "group lost", {{"tenant", "quiet"}, {"rank", 0}});
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), kMaxLogLines + 1);
  EXPECT_THAT(lines, ::testing::HasSubstr("tenant=quiet rank=0"));
}

TEST(LoggingTest, UnknownLevelIsAnError) {
  EXPECT_FALSE(InitLogging({.level = "loud"}).ok());
  EXPECT_TRUE(InitLogging({.level = "error"}).ok());
  Log(LogLevel::kError, "braces {} are text", {{"k", "{0}"}});
}

// Makes standard error a full pipe without a reader.
void BlockStandardError() {
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(9);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const std::string page(4096, 'x');
  while (write(ends[1], page.data(), page.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
}

TEST(LoggingDeathTest, TheEndWaitsForAReaderOnlySoLong) {
  EXPECT_EXIT(
      {
        BlockStandardError();
        InitLogging({}).IgnoreError();
        Log(LogLevel::kInfo, "an unread line");
        const absl::Time start = absl::Now();
        const bool finished = FinishLogging(absl::Milliseconds(50));
        _exit(finished ? 1 : absl::Now() - start > absl::Seconds(20) ? 2 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(LoggingDeathTest, TheLastLinesAreWrittenBeforeTheEnd) {
  EXPECT_EXIT(
      {
        InitLogging({}).IgnoreError();
        for (int i = 0; i < 1000; ++i) Log(LogLevel::kInfo, "line", {{"number", i}});
        _exit(FinishLogging(absl::Seconds(20)) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "number=999");
}

}  // namespace
}  // namespace cohort
