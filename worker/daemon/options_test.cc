#include "worker/daemon/options.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/daemon/limits/quota.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Parsed {
  Options options;
  std::string message;
  std::string text;
  std::string changes;
};

absl::StatusOr<Parsed> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "cohort-worker");
  Parsed parsed;
  Flags flags = FlagsOf(parsed.options);
  COHORT_ASSIGN_OR_RETURN(parsed.message,
                          flags.Parse(static_cast<int>(arguments.size()), arguments.data()));
  parsed.text = flags.ToString();
  parsed.changes = flags.Changes();
  return parsed;
}

TEST(OptionsTest, Defaults) {
  const absl::StatusOr<Parsed> parsed = Parse({});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Options& options = parsed->options;
  EXPECT_EQ(options.coordinator, "127.0.0.1:7700");
  EXPECT_THAT(options.listen, ElementsAre("127.0.0.1:7800"));
  EXPECT_EQ(options.drain_grace, absl::Seconds(10));
  EXPECT_EQ(parsed->changes, "");
}

TEST(OptionsTest, Flags) {
  const absl::StatusOr<Parsed> parsed =
      Parse({"--coordinator", "c:7700", "--listen", "unix:/run/w.sock", "--listen", "[::1]:0",
             "--max-calls", "8", "--max-calls-per-session", "4", "--stream-idle-limit", "2s",
             "--drain-grace", "1500ms", "--log-format", "json"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Options& options = parsed->options;
  EXPECT_EQ(options.coordinator, "c:7700");
  EXPECT_THAT(options.listen, ElementsAre("unix:/run/w.sock", "[::1]:0"));
  EXPECT_EQ(options.max_calls, 8);
  EXPECT_EQ(options.max_calls_per_session, 4);
  EXPECT_EQ(options.stream_idle_limit, absl::Seconds(2));
  EXPECT_EQ(options.drain_grace, absl::Milliseconds(1500));
  EXPECT_THAT(parsed->changes, HasSubstr("coordinator=c:7700"));
}

TEST(OptionsTest, RejectsInvalidOptions) {
  for (const auto& [flags, named] : std::vector<std::pair<std::vector<const char*>, std::string>>{
           {{"--listen", "0.0.0.0:7800"}, "--insecure"},
           {{"--listen", "no-port"}, "host:port"},
           {{"--listen", "unix:relative"}, "full path"},
           {{"--coordinator", ""}, "--coordinator"},
           {{"--metrics-listen", "unix:/m"}, "--metrics-listen"},
           {{"--metrics-listen", "0.0.0.0:7801"}, "--insecure"},
           {{"--max-calls", "0"}, "--max-calls"},
           {{"--max-calls-per-session", "0"}, "--max-calls-per-session"},
           {{"--max-descriptors", "-1"}, "--max-descriptors"},
           {{"--max-descriptors-per-session", "-1"}, "--max-descriptors-per-session"},
           {{"--max-tensor-bytes", "-1"}, "--max-tensor-bytes"},
           {{"--max-tensor-bytes-per-session", "-1"}, "--max-tensor-bytes-per-session"},
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
  const absl::StatusOr<Parsed> written = Parse({"--coordinator", "c:1", "--listen", "unix:/a",
                                                "--listen", "127.0.0.1:0", "--max-calls", "77"});
  ASSERT_TRUE(written.ok()) << written.status();
  const std::string path = absl::StrCat(::testing::TempDir(), "/worker.toml");
  std::ofstream(path) << written->text;
  const absl::StatusOr<Parsed> read = Parse({"--config", path.c_str()});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->options.max_calls, 77);
  EXPECT_EQ(read->text, written->text);
}

TEST(OptionsTest, TensorsTakeThreeQuartersOfTheMemoryUnlessAFlagSaysOtherwise) {
  constexpr int64_t kContainer = int64_t{256} << 20;
  Options options;
  QuotaLimits limits = TensorLimitsOf(options, kContainer);
  EXPECT_EQ(limits.max_in_all, int64_t{192} << 20);
  EXPECT_EQ(limits.max_per_session, 0);
  EXPECT_EQ(TensorLimitsOf(options, 2 * kContainer).max_in_all, int64_t{384} << 20);
  options.max_tensor_bytes = 2 * kContainer;
  options.max_tensor_bytes_per_session = 4096;
  limits = TensorLimitsOf(options, kContainer);
  EXPECT_EQ(limits.max_in_all, 2 * kContainer);
  EXPECT_EQ(limits.max_per_session, 4096);
}

TEST(OptionsTest, HelpAndVersion) {
  EXPECT_THAT(Parse({"--help"})->message, HasSubstr("--coordinator"));
  EXPECT_THAT(Parse({"--version"})->message, HasSubstr("cohort-worker "));
}

}  // namespace
}  // namespace cohort::worker
