#include "coordinator/options.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "coordinator/core/interface/limit_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Parsed {
  Options options;
  std::string message;
  std::string text;
  std::string changes;
};

absl::StatusOr<Parsed> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "cohort-coordinator");
  Parsed parsed;
  Flags flags = FlagsOf(parsed.options);
  COHORT_ASSIGN_OR_RETURN(parsed.message,
                          flags.Parse(static_cast<int>(arguments.size()), arguments.data()));
  parsed.text = flags.ToString();
  parsed.changes = flags.Changes();
  return parsed;
}

TEST(OptionsTest, Defaults) {
  const auto parsed = Parse({});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->options.listen, ElementsAre("127.0.0.1:7700"));
  EXPECT_EQ(parsed->options.metrics_listen, "127.0.0.1:7701");
  EXPECT_EQ(parsed->options.journal, JournalKind::kMemory);
  EXPECT_EQ(parsed->options.drain_grace, absl::Seconds(10));
  EXPECT_EQ(parsed->message, "");
  EXPECT_EQ(parsed->changes, "");
}

TEST(OptionsTest, AllTogether) {
  const auto parsed = Parse({"--listen",
                             "127.0.0.1:0",
                             "--listen",
                             "[::1]:0",
                             "--unix-socket-mode",
                             "0660",
                             "--metrics-listen=",
                             "--journal=sqlite",
                             "--journal-path",
                             "/tmp/j",
                             "--shards",
                             "2",
                             "--log-format",
                             "json",
                             "--log-level",
                             "debug",
                             "--reflection",
                             "--drain-grace",
                             "500ms",
                             "--ping-timeout",
                             "90s",
                             "--max-wait",
                             "2m",
                             "--limit",
                             "max_keys=5",
                             "--limit",
                             "max_groups=6",
                             "--port-file",
                             "/tmp/p"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->options.listen, ElementsAre("127.0.0.1:0", "[::1]:0"));
  EXPECT_EQ(parsed->options.unix_socket_mode, 0660);
  EXPECT_EQ(parsed->options.metrics_listen, "");
  EXPECT_EQ(parsed->options.journal, JournalKind::kSqlite);
  EXPECT_EQ(parsed->options.log.format, LogFormat::kJson);
  EXPECT_EQ(parsed->options.drain_grace, absl::Milliseconds(500));
  EXPECT_EQ(parsed->options.ping_timeout, absl::Seconds(90));
  EXPECT_EQ(parsed->options.limits.max_keys, 5);
  EXPECT_EQ(parsed->options.limits.max_groups, 6);
}

TEST(OptionsTest, MistakesAreNamed) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
      {{"--no-such-flag"}, "no-such-flag"},
      {{"--listen", "0.0.0.0:7700"}, "--insecure"},
      {{"--listen", "127.0.0.1:7700", "--listen", "0.0.0.0:7701"}, "--insecure"},
      {{"--listen", "127.0.0.1:7700,http"},
       "there is no protocol \"http\"; there are rpc, tcpstore, torchft"},
      {{"--proxy-protocol-from", "10.0.0.0/33"},
       "--proxy-protocol-from: \"10.0.0.0/33\" is no network"},
      {{"--listen", "127.0.0.1:7700,"}, "there is no protocol \"\""},
      {{"--listen", "0.0.0.0:7700", "--tls-certificate", "c", "--tls-key", "k"},
       "clients do not prove who they are: add --tls-client-ca"},
      {{"--listen", "no-port"}, "no-port"},
      {{"--metrics-listen", "unix:/m"}, "--metrics-listen"},
      {{"--metrics-listen", "0.0.0.0:7701"}, "--insecure"},
      {{"--tls-certificate", "c", "--tls-key", "k", "--tls-client-certificate-optional"},
       "--tls-client-certificate-optional: needs --tls-client-ca"},
      {{"--tls-certificate", "c", "--tls-key", "k",
        "--tls-client-ca=", "--tls-client-certificate-optional"},
       "--tls-client-certificate-optional: needs --tls-client-ca"},
      {{"--tls-certificate", "c", "--tls-key", "k", "--tls-client-ca", "a",
        "--tls-client-certificate-optional"},
       "--tls-client-certificate-optional: needs --access-policy"},
      {{"--tls-certificate", "c", "--tls-key", "k", "--tls-client-ca", "a", "--tls-client-ca",
        "Prod=b"},
       "--tls-client-ca: \"Prod\" is no trust domain"},
      {{"--unix-socket-mode", "0888"}, "--unix-socket-mode: \"0888\""},
      {{"--unix-socket-mode", "1777"}, "from 0000 to 0777"},
      {{"--unix-socket-mode", ""}, "--unix-socket-mode"},
      {{"--journal", "tape"}, "--journal"},
      {{"--journal", "sqlite"}, "--journal-path"},
      {{"--journal-path", "/tmp/j"}, "--journal-path"},
      {{"--shards", "0"}, "--shards"},
      {{"--log-level", "loud"}, "--log-level"},
      {{"--log-format", "xml"}, "--log-format"},
      {{"--drain-grace", "10"}, "--drain-grace"},
      {{"--max-wait", "25h"}, "--max-wait"},
      {{"--limit", "max_keys"}, "NAME=VALUE"},
      {{"--limit", "max_keys=-1"}, "max_keys"},
      {{"--limit", "max_fun=1"}, "max_fun"},
      {{"--max-message-bytes", "100000"}, "max_inline_bytes"},
      {{"--max-connections", "-1"}, "--max-connections"},
      {{"--max-connections-per-peer", "-1"}, "--max-connections-per-peer"},
      {{"--max-concurrent-streams", "100000000"}, "16777216"},
      {{"--max-resets-per-second", "0"}, "--max-resets-per-second"},
      {{"--max-idle-frames-per-second", "0"}, "--max-idle-frames-per-second"},
      {{"--max-incoming-bytes", "-1"}, "--max-incoming-bytes"},
      {{"--torchft-min-replicas", "-1"}, "--torchft-min-replicas"},
      {{"--torchft-heartbeat-timeout", "0s"}, "--torchft-heartbeat-timeout"},
      {{"--max-incoming-bytes", "1000000", "--max-message-bytes", "500001"},
       "500001 is over half of --max-incoming-bytes (1000000)"},
  };
  for (const auto& [flags, text] : cases) {
    const auto parsed = Parse(flags);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << flags[0];
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(text)) << flags[0];
  }
  EXPECT_TRUE(Parse({"--listen", "0.0.0.0:7700", "--insecure"}).ok());
}

TEST(OptionsTest, VersionAndHelp) {
  EXPECT_THAT(Parse({"--version"})->message, HasSubstr("cohort-coordinator "));
  EXPECT_THAT(Parse({"--help"})->message, HasSubstr("--drain-grace"));
  EXPECT_THAT(Parse({"--check-config", "--shards", "7"})->message, HasSubstr("shards = 7\n"));
}

TEST(OptionsTest, PrintedOptionsCanBeReadBack) {
  const auto first = Parse({"--listen",
                            "127.0.0.1:1",
                            "--listen",
                            "unix:/run/c.sock",
                            "--limit",
                            "max_keys=5",
                            "--drain-grace",
                            "1.5s",
                            "--metrics-listen",
                            "",
                            "--max-connections",
                            "100",
                            "--max-connections-per-peer",
                            "10",
                            "--max-concurrent-streams",
                            "20",
                            "--max-resets-per-second",
                            "30",
                            "--max-idle-frames-per-second",
                            "40"});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string path = absl::StrCat(testing::TempDir(), "/cohort-options.toml");
  std::ofstream(path) << first->text;
  const auto second = Parse({"--config", path.c_str(), "--shards", "7"});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->options.shards, 7);
  EXPECT_EQ(second->text, absl::StrReplaceAll(first->text, {{"shards = 4", "shards = 7"}}));
}

TEST(OptionsTest, OnlyWhatWasChangedIsLogged) {
  const auto parsed = Parse({"--listen", "127.0.0.1:1", "--listen", "unix:/run/c.sock", "--journal",
                             "sqlite", "--journal-path", "/tmp/j", "--limit", "max_keys=5"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->changes,
            "listen=[127.0.0.1:1, unix:/run/c.sock] journal=sqlite journal-path=/tmp/j max_keys=5");
}

// On a small machine, the limits of a part stay below those of the whole.
TEST(OptionsTest, TheDefaultLimitsFollowFromTheMemory) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  struct Case {
    int64_t memory, bytes_held, group_bytes_held, tenant_bytes_held, closed_names;
  };
  for (const Case& row : {
           Case{64 * kGiB, 32 * kGiB, kGiB, 24 * kGiB, 65536},
           Case{2 * kGiB, kGiB, kGiB, kGiB / 4 * 3, 65536},
           Case{kGiB, kGiB / 2, kGiB / 2, kGiB / 8 * 3, 65536},
           Case{64 << 20, 32 << 20, 32 << 20, 24 << 20, 4096},
           Case{1, 1, 1, 1, 1},
       }) {
    SCOPED_TRACE(row.memory);
    const Limits limits = DefaultLimits(row.memory);
    EXPECT_EQ(limits.max_bytes_held, row.bytes_held);
    EXPECT_EQ(limits.max_group_bytes_held, row.group_bytes_held);
    EXPECT_EQ(limits.max_tenant_bytes_held, row.tenant_bytes_held);
    EXPECT_EQ(limits.max_closed_names, row.closed_names);
  }
}

TEST(LimitNamesTest, HelpSaysWhatEachLimitCounts) {
  const std::string help = Parse({"--help"})->message;
  for (const LimitName& limit : LimitNames()) {
    EXPECT_FALSE(CountedBy(limit.name).empty()) << limit.name;
  }
  EXPECT_THAT(help, HasSubstr("max_groups=100000 (groups)"));
}

TEST(LimitNamesTest, EveryNameSetsItsField) {
  Limits limits;
  for (const LimitName& limit : LimitNames()) {
    ASSERT_TRUE(SetLimit(limit.name, 42, &limits).ok());
    EXPECT_EQ(limits.*limit.field, 42) << limit.name;
  }
}

}  // namespace
}  // namespace cohort::coordinator
