#include "base/logging.h"

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
            "\"d\":0.5,\"s\":\"\xef\xbf\xbd\"}");
}

TEST(LoggingTest, UnknownLevelIsAnError) {
  EXPECT_FALSE(InitLogging({.level = "loud"}).ok());
  EXPECT_TRUE(InitLogging({.level = "error"}).ok());
  Log(LogLevel::kError, "braces {} are text", {{"k", "{0}"}});
}

}  // namespace
}  // namespace cohort
