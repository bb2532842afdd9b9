#include "worker/daemon/options.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ParsedOptions> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "cohort-worker");
  return ParseOptions(static_cast<int>(flags.size()), flags.data());
}

TEST(OptionsTest, Defaults) {
  const Options options = Parse({})->options;
  EXPECT_EQ(options.coordinator, "127.0.0.1:7700");
  EXPECT_THAT(options.listen, ElementsAre("127.0.0.1:7800"));
  EXPECT_EQ(options.drain_grace, absl::Seconds(10));
  EXPECT_EQ(FormatChanges(options), "");
}

TEST(OptionsTest, Flags) {
  const Options options =
      Parse({"--coordinator", "c:7700", "--listen", "unix:/run/w.sock", "--listen", "[::1]:0",
             "--max-calls", "8", "--max-calls-per-session", "4", "--stream-idle-limit", "2s",
             "--drain-grace", "1500ms", "--log-format", "json"})
          ->options;
  EXPECT_EQ(options.coordinator, "c:7700");
  EXPECT_THAT(options.listen, ElementsAre("unix:/run/w.sock", "[::1]:0"));
  EXPECT_EQ(options.max_calls, 8);
  EXPECT_EQ(options.max_calls_per_session, 4);
  EXPECT_EQ(options.stream_idle_limit, absl::Seconds(2));
  EXPECT_EQ(options.drain_grace, absl::Milliseconds(1500));
  EXPECT_THAT(FormatChanges(options), HasSubstr("coordinator=c:7700"));
}

TEST(OptionsTest, RejectsInvalidOptions) {
  for (const auto& [flags, named] : std::vector<std::pair<std::vector<const char*>, std::string>>{
           {{"--listen", "0.0.0.0:7800"}, "--insecure"},
           {{"--listen", "no-port"}, "host:port"},
           {{"--listen", "unix:relative"}, "full path"},
           {{"--coordinator", ""}, "--coordinator"},
           {{"--metrics-listen", "unix:/m"}, "--metrics-listen"},
           {{"--max-calls", "0"}, "--max-calls"},
           {{"--max-calls-per-session", "0"}, "--max-calls-per-session"},
           {{"--max-descriptors", "-1"}, "--max-descriptors"},
           {{"--max-descriptors-per-session", "-1"}, "--max-descriptors-per-session"},
           {{"--stream-idle-limit", "0s"}, "--stream-idle-limit"},
           {{"--stream-idle-limit", "soon"}, "--stream-idle-limit"},
           {{"--max-message-bytes", "10"}, "--max-message-bytes"},
           {{"--drain-grace", "soon"}, "--drain-grace"},
           {{"--log-level", "loud"}, "--log-level"},
           {{"--no-such-flag"}, "no-such-flag"}}) {
    const absl::Status status = Parse(flags).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << flags[0];
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }
  EXPECT_TRUE(Parse({"--listen", "0.0.0.0:7800", "--insecure"}).ok());
}

TEST(OptionsTest, PrintedOptionsAreReadBack) {
  Options options;
  options.coordinator = "c:1";
  options.listen = {"unix:/a", "127.0.0.1:0"};
  options.max_calls = 77;
  const std::string path = absl::StrCat(::testing::TempDir(), "/worker.toml");
  std::ofstream(path) << FormatOptions(options);
  const absl::StatusOr<ParsedOptions> read = Parse({"--config", path.c_str()});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(FormatOptions(read->options), FormatOptions(options));
}

TEST(OptionsTest, HelpAndVersion) {
  EXPECT_THAT(Parse({"--help"})->message, HasSubstr("--coordinator"));
  EXPECT_THAT(Parse({"--version"})->message, HasSubstr("cohort-worker "));
}

}  // namespace
}  // namespace cohort::worker
