#include "worker/daemon/options.h"

#include <cstdint>
#include <fstream>
#include <functional>
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
using ::testing::StartsWith;

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

// Each flag sets its own field, from the command line and from a file alike.
TEST(OptionsTest, EachFlagSetsItsField) {
  struct Case {
    const char* flag;
    const char* value;
    std::function<bool(const Options&)> is_set;
  };
  const std::vector<Case> cases = {
      {"coordinator", "c:7700", [](const Options& o) { return o.coordinator == "c:7700"; }},
      {"allowed-coordinators", "d:7700",
       [](const Options& o) {
         return o.allowed_coordinators == std::vector<std::string>{"d:7700"};
       }},
      {"advertise", "node7", [](const Options& o) { return o.advertise == "node7"; }},
      {"host-identity", "rack-1", [](const Options& o) { return o.host_identity == "rack-1"; }},
      {"host-folder", "/run/cohort",
       [](const Options& o) { return o.host_folder == "/run/cohort"; }},
      {"max-calls", "8", [](const Options& o) { return o.max_calls == 8; }},
      {"max-calls-per-session", "4", [](const Options& o) { return o.max_calls_per_session == 4; }},
      {"stream-idle-limit", "2s",
       [](const Options& o) { return o.stream_idle_limit == absl::Seconds(2); }},
      {"max-descriptors", "90", [](const Options& o) { return o.max_descriptors == 90; }},
      {"max-descriptors-per-session", "30",
       [](const Options& o) { return o.max_descriptors_per_session == 30; }},
      {"max-tensor-bytes", "5000000000",
       [](const Options& o) { return o.max_tensor_bytes == 5000000000; }},
      {"max-tensor-bytes-per-session", "4000000000",
       [](const Options& o) { return o.max_tensor_bytes_per_session == 4000000000; }},
      {"max-message-bytes", "65536", [](const Options& o) { return o.max_message_bytes == 65536; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.flag);
    EXPECT_FALSE(one.is_set(Options())) << "that is the default";
    const std::string flag = absl::StrCat("--", one.flag);
    const absl::StatusOr<Parsed> parsed = Parse({flag.c_str(), one.value});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(parsed->changes, StartsWith(absl::StrCat(one.flag, "=")));
    EXPECT_THAT(parsed->changes, HasSubstr(one.value));
    int set = 0;
    for (const Case& other : cases) set += other.is_set(parsed->options) ? 1 : 0;
    EXPECT_TRUE(one.is_set(parsed->options));
    EXPECT_EQ(set, 1) << "it changed another field";
    const std::string path = absl::StrCat(::testing::TempDir(), "/one-flag.toml");
    std::ofstream(path) << parsed->text;
    const absl::StatusOr<Parsed> read = Parse({"--config", path.c_str()});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(one.is_set(read->options)) << "in " << parsed->text;
  }
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
