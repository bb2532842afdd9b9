// The tool's handling of a command line: usage, errors, exit codes. One file, though long: a case
// is a few lines, and all run the same tool.
#include "client/cli/tool.h"

#include <cerrno>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/testing/tool_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Arguments, GlobalFlagsMayStandAnywhere) {
  ToolRun tool;
  EXPECT_EQ(tool({"--tenant", "t", "server", "--coordinator", "h:1", "--timeout", "2s"}).code, 0);
  EXPECT_EQ(tool.fake.connection.address, "h:1");
  EXPECT_EQ(tool.fake.connection.tenant, "t");
  EXPECT_EQ(tool.fake.admin_timeout, absl::Seconds(2));
}

TEST(Arguments, CoordinatorComesFromFlagThenEnvironmentThenDefault) {
  ToolRun tool;
  tool({"server"});
  EXPECT_EQ(tool.fake.connection.address, "127.0.0.1:7700");
  tool.coordinator_variable = "env:2";
  tool({"server"});
  EXPECT_EQ(tool.fake.connection.address, "env:2");
  tool({"server", "--coordinator", "flag:3"});
  EXPECT_EQ(tool.fake.connection.address, "flag:3");
}

TEST(Arguments, WrongUsageEndsWithTwoAndAsksNothing) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"group"},
      {"group", "show"},
      {"group", "show", "g", "extra"},
      {"group", "evict", "g", "m"},
      {"group", "watch", "g", "--from", "-1"},
      {"group", "watch", "g", "--exec"},
      {"group", "watch", "g", "--exec", "true", "--exec-timeout", "soon"},
      {"who-is-missing", "g", "--older-than", "long"},
      {"who-is-missing", "g", "--rank", "one"},
      {"barrier", "g", "--rank", "0"},
      {"barrier", "g", "--rank", "-1", "--world-size", "2"},
      {"barrier", "g", "--rank", "0", "--world-size", "0"},
      {"object", "send", "g", "--rank", "0", "--world-size", "2"},
      {"object", "recv", "g", "--rank", "0", "--world-size", "2", "--from", "x"},
      {"store", "add", "k", "one"},
      {"store", "get", "k", "--wait", "30"},
      {"store", "get", "k", "--wait", "inf"},
      {"server", "--timeout", "-5s"},
      {"server", "--unknown"},
      {"drain", "--now", "--resume"},
      {"perf", "--members", "0"},
      {"perf", "--factor", "1", "--members", "2"},
      {"perf", "--form", "other", "--members", "2"},
      {"push", "--group", "g"},
      {"pull", "--group", "g", "--output", "a", "--verify", "b"},
      {"limits", "max_keys"},
      {"limits", "max_keys=many"},
  };
  for (const auto& arguments : wrong) {
    ToolRun tool;
    const ToolResult result = tool(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("cohort: "));
    EXPECT_THAT(tool.fake.calls, IsEmpty());
  }
}

TEST(Arguments, WrongUsageSaysWhereHelpIs) {
  ToolRun tool;
  const ToolResult result = tool({"group", "show"});
  EXPECT_EQ(result.err, "cohort: GROUP is required (try 'cohort group show --help')\n");
}

TEST(Arguments, WrongUsageIsJsonWhenAskedFor) {
  ToolRun tool;
  EXPECT_EQ(tool({"group", "show", "--json"}).out,
            "{\"error\":{\"code\":\"INVALID_ARGUMENT\",\"message\":\"GROUP is required\"}}\n");
}

TEST(Arguments, HelpListsExitCodesAndExamples) {
  ToolRun tool;
  const ToolResult main = tool({"--help"});
  EXPECT_EQ(main.code, 0);
  EXPECT_THAT(main.out, HasSubstr("Exit codes:"));
  EXPECT_THAT(main.out, HasSubstr("who-is-missing"));
  EXPECT_EQ(main.err, "");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"group", "list"},
                                             {"group", "show"},
                                             {"group", "watch"},
                                             {"group", "evict"},
                                             {"group", "close"},
                                             {"who-is-missing"},
                                             {"waits"},
                                             {"barrier"},
                                             {"object", "send"},
                                             {"object", "recv"},
                                             {"object", "broadcast"},
                                             {"object", "gather"},
                                             {"object", "all-gather"},
                                             {"store", "get"},
                                             {"store", "put"},
                                             {"store", "delete"},
                                             {"store", "list"},
                                             {"store", "add"},
                                             {"store", "append"},
                                             {"store", "push"},
                                             {"store", "pop"},
                                             {"store", "watch"},
                                             {"drain"},
                                             {"perf"},
                                             {"push"},
                                             {"pull"},
                                             {"server"},
                                             {"limits"},
                                             {"can-i"},
                                             {"policy", "check"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const ToolResult help = tool(arguments);
    EXPECT_EQ(help.code, 0) << testing::PrintToString(command);
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  ")) << testing::PrintToString(command);
  }
}

TEST(Arguments, WrongUsageNamesWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"nonsense", "x"}, "no command nonsense; there are group, who-is-missing, "},
      {{"group", "nonsense"}, "no command nonsense; there are list, show, watch, evict, close"},
      {{"group"}, "a command is missing; there are list, show, "},
      {{"group", "--json"}, "a command is missing; there are list, show, "},
      {{"group", "show"}, "GROUP is required"},
      {{"store", "get", "--wait", "--timeout", "5s", "k"},
       "--wait: a duration such as 500ms, 30s or 5m is missing before --timeout"},
      {{"barrier", "g", "--rank", "x", "--world-size", "2"}, "--rank: 'x' is no whole number"},
      {{"barrier", "g", "--rank", "-1", "--world-size", "2"}, "--rank: -1 is below 0"},
      {{"barrier", "g", "--rank", "0", "--world-size", "0"}, "--world-size: 0 is below 1"},
      {{"store", "add", "k", "one"}, "DELTA: 'one' is no whole number"},
  };
  for (const auto& [arguments, text] : wrong) {
    ToolRun tool;
    EXPECT_THAT(tool(arguments).err, StartsWith("cohort: " + text))
        << testing::PrintToString(arguments);
  }
}

TEST(Arguments, HelpShowsTheDefaultTimeout) {
  ToolRun tool;
  for (const auto& [command, timeout] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"object", "send", "--help"}, "5m"},
           {{"object", "recv", "--help"}, "5m"},
           {{"barrier", "--help"}, "30s"},
           {{"store", "put", "--help"}, "30s"},
           {{"group", "watch", "--help"}, "for ever"},
           {{"server", "--help"}, "10s"},
       }) {
    EXPECT_THAT(tool(command).out, HasSubstr("--timeout (here by default " + timeout + ")"));
  }
}

TEST(Arguments, VersionIsAResult) {
  ToolRun tool;
  const ToolResult result = tool({"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, StartsWith("cohort "));
}

TEST(ExitCodes, FollowTheStatus) {
  const std::vector<std::pair<absl::StatusCode, int>> codes = {
      {absl::StatusCode::kInvalidArgument, 2},
      {absl::StatusCode::kDeadlineExceeded, 3},
      {absl::StatusCode::kNotFound, 4},
      {absl::StatusCode::kUnavailable, 5},
      {absl::StatusCode::kAborted, 6},
      {absl::StatusCode::kCancelled, 6},
      {absl::StatusCode::kResourceExhausted, 7},
      {absl::StatusCode::kAlreadyExists, 9},
      {absl::StatusCode::kFailedPrecondition, 9},
      {absl::StatusCode::kDataLoss, 1},
      {absl::StatusCode::kOutOfRange, 1},
      {absl::StatusCode::kInternal, 1},
  };
  for (const auto& [code, exit_code] : codes) {
    ToolRun tool;
    tool.fake.error = absl::Status(code, "because");
    const std::string name = absl::StatusCodeToString(code);
    const ToolResult result = tool({"server"});
    EXPECT_EQ(result.code, exit_code) << name;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "cohort: " + name + ": because\n");
  }
}

TEST(ExitCodes, TheExitCodeOfWhoIsMissingTellsWhetherRanksAreMissing) {
  ToolRun tool;
  EXPECT_EQ(tool({"who-is-missing", "g"}).code, 0);
  tool.fake.who_is_missing.waits.emplace_back();
  EXPECT_EQ(tool({"who-is-missing", "g"}).code, 3);
  tool.fake.who_is_missing.waits.clear();
  tool.fake.who_is_missing.inits.emplace_back();
  EXPECT_EQ(tool({"who-is-missing", "g"}).code, 3);
}

TEST(ExitCodes, StoreCommandsReportMissingKeys) {
  ToolRun tool;
  tool.fake.get.missing_keys = {"b"};
  EXPECT_EQ(tool({"store", "get", "a", "b"}).code, 4);
  EXPECT_EQ(tool({"store", "get", "a", "b", "--wait", "1s"}).code, 3);
  EXPECT_EQ(tool({"store", "put", "k", "v", "--if-revision", "3"}).code, 8);
  EXPECT_EQ(tool({"store", "pop", "q"}).code, 8);
  EXPECT_EQ(tool({"store", "delete", "k"}).code, 4);
  EXPECT_EQ(tool({"store", "delete", "k", "--prefix"}).code, 0);
}

TEST(Errors, NameCulpritGroupGenerationAndOperation) {
  ToolRun tool;
  tool.fake.error = absl::AbortedError("the generation ended");
  tool.fake.error_info.group = "trainer";
  tool.fake.error_info.current_generation = 4;
  tool.fake.error_info.operation = "barrier \"step\" #812";
  tool.fake.error_info.cause.kind = client::CauseKind::kConnectionLost;
  tool.fake.error_info.cause.rank = 3;
  tool.fake.error_info.cause.member = "rank-3";
  tool.fake.error_info.cause.host = "host-a";
  const ToolResult result =
      tool({"barrier", "trainer", "--rank", "0", "--world-size", "4", "--json"});
  EXPECT_EQ(result.code, 6);
  // The text already has the word "generation", so the line does not repeat it.
  EXPECT_EQ(result.err,
            "cohort: ABORTED: the generation ended (barrier \"step\" #812; group trainer; "
            "connection_lost, rank 3 (rank-3 on host-a))\n");
  EXPECT_EQ(result.out,
            R"({"error":{"code":"ABORTED","message":"the generation ended","group":"trainer",)"
            R"("generation":4,"operation":"barrier \"step\" #812",)"
            R"("cause":{"kind":"connection_lost","member":"rank-3","rank":3,"host":"host-a",)"
            R"("age_seconds":0.0}}})"
            "\n");
}

TEST(Errors, DoNotRepeatACauseThatTheTextHas) {
  ToolRun tool;
  tool.fake.error = absl::AbortedError("group g, generation 1: rank-3 was evicted: broken disk");
  tool.fake.error_info.group = "g";
  tool.fake.error_info.cause.kind = client::CauseKind::kEvicted;
  tool.fake.error_info.cause.member = "rank-3";
  tool.fake.error_info.cause.detail = "broken disk";
  EXPECT_EQ(tool({"server"}).err,
            "cohort: ABORTED: group g, generation 1: rank-3 was evicted: broken disk\n");
}

TEST(Errors, DoNotRepeatThatTheGroupWasClosed) {
  ToolRun tool;
  tool.fake.error =
      absl::NotFoundError("there is no group g; it was closed 3.2s ago, in generation 1");
  tool.fake.error_info.group = "g";
  tool.fake.error_info.cause.kind = client::CauseKind::kClosed;
  tool.fake.error_info.cause.age = absl::Seconds(3);
  EXPECT_EQ(tool({"server"}).err,
            "cohort: NOT_FOUND: there is no group g; it was closed 3.2s ago, in generation 1\n");
}

TEST(Errors, DeadlinesNameTheMissingRanks) {
  ToolRun tool;
  tool.fake.join_error = absl::DeadlineExceededError("group g is not complete");
  tool.fake.waiting_to_join.expected_count = 4;
  tool.fake.waiting_to_join.arrived_count = 2;
  tool.fake.waiting_to_join.arrived = {{0, 1}};
  tool.fake.waiting_to_join.missing = {{2, 3}};
  const ToolResult result = tool({"barrier", "g", "--rank", "0", "--world-size", "4", "--json"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("waiting for group g: 2 of 4 here (ranks 0-1), missing "
                                    "ranks 2-3\ncohort: DEADLINE_EXCEEDED: group g is not "
                                    "complete (2 of 4 missing: ranks 2-3"));
  EXPECT_THAT(result.out, HasSubstr(R"("missing":{"expected_count":4,"arrived_count":2,)"));
  EXPECT_EQ(tool.interrupts_set, 0);
}

TEST(Errors, ARankThatJoinedLateIsNotBlamed) {
  ToolRun tool;
  tool.fake.waiting_to_join.missing = {{1, 1}};
  tool.fake.error = absl::DeadlineExceededError("no object");
  const ToolResult result = tool({"object", "recv", "g", "--rank", "0", "--world-size", "2"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("cohort: DEADLINE_EXCEEDED: no object\n"));
}

client::AwayReport Away(client::AwayKind kind) {
  client::AwayReport away;
  away.kind = kind;
  away.address = "h:1";
  away.detail = "Connection refused";
  away.remaining = absl::Seconds(9);
  return away;
}

TEST(Away, IsReportedOnceForEachChange) {
  ToolRun tool;
  tool.fake.away["Range"] = Away(client::AwayKind::kUnreachable);
  tool.fake.pages.resize(2);
  tool.fake.pages[0].next = "a";
  const ToolResult result = tool({"store", "list"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err,
            "cohort: the coordinator at h:1 cannot be reached (Connection refused); trying for "
            "9.0s more\n");
  EXPECT_THAT(tool.fake.calls, testing::SizeIs(2));
}

TEST(Away, IsShownInPlaceOfTheMissingRanks) {
  ToolRun tool;
  tool.fake.away["Join"] = Away(client::AwayKind::kDraining);
  tool.fake.away["Barrier"] = Away(client::AwayKind::kSilent);
  EXPECT_EQ(tool({"barrier", "g", "--rank", "0", "--world-size", "2"}).err,
            "waiting for group g: the coordinator at h:1 is draining; trying for 9.0s more\n"
            "waiting for barrier: the coordinator at h:1 does not answer (Connection refused); "
            "trying for 9.0s more\n");
  // For a call without a line of its own, it is a remark again.
  tool.fake.away = {{"Send", Away(client::AwayKind::kSilent)}};
  EXPECT_THAT(tool({"object", "send", "g", "--rank", "0", "--world-size", "2", "--to", "1"}).err,
              StartsWith("cohort: the coordinator at h:1 does not answer"));
}

TEST(Errors, TextOfOthersStaysOnOneLine) {
  ToolRun tool;
  tool.fake.error = absl::InternalError("a\nb\x1b[31m");
  EXPECT_EQ(tool({"server"}).err, "cohort: INTERNAL: a\\x0ab\\x1b[31m\n");
}

// Accepts no bytes, like a pipe without a reader or a full disk.
class Refusing : public std::streambuf {
 public:
  explicit Refusing(int error) : error_(error) {}

 private:
  int_type overflow(int_type) override {
    errno = error_;
    return traits_type::eof();
  }
  const int error_;
};

TEST(Output, ClosedPipeEndsQuietly) {
  ToolRun tool;
  tool.fake.group_events.resize(3);
  Refusing pipe(EPIPE);
  std::ostream out(&pipe);
  std::ostringstream err;
  EXPECT_EQ(tool.Run({"group", "watch", "g"}, out, err), 141);
  EXPECT_EQ(err.str(), "");
}

TEST(Output, FullDiskIsAnError) {
  ToolRun tool;
  Refusing disk(ENOSPC);
  std::ostream out(&disk);
  std::ostringstream err;
  EXPECT_EQ(tool.Run({"server"}, out, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("cannot write to standard output: No space left"));
}

TEST(MembershipTest, IsLeftAfterSuccessAndAfterFailure) {
  ToolRun tool;
  const std::vector<std::string> barrier = {"barrier", "g",    "--rank",   "1", "--world-size", "2",
                                            "--name",  "step", "--member", "me"};
  EXPECT_EQ(tool(barrier).code, 0);
  EXPECT_THAT(tool.fake.calls, ElementsAre("Join(g, 1, 2, me)", "Barrier(step)", "Leave(done)"));
  tool.fake.calls.clear();
  tool.fake.error = absl::DeadlineExceededError("late");
  EXPECT_EQ(tool(barrier).code, 3);
  EXPECT_THAT(tool.fake.calls,
              ElementsAre("Join(g, 1, 2, me)", "Barrier(step)", "Leave(it failed: late)"));
  EXPECT_EQ(tool.interrupts_set, 2);
  EXPECT_EQ(tool.interrupt_balance, 0);
}

TEST(MembershipTest, DoesNotWaitForACoordinatorThatIsAway) {
  ToolRun tool;
  tool.fake.error = absl::UnavailableError("away");
  EXPECT_EQ(tool({"barrier", "g", "--rank", "0", "--world-size", "1"}).code, 5);
  EXPECT_THAT(tool.fake.calls, ElementsAre("Join(g, 0, 1, )", "Barrier()"));
}

TEST(MembershipTest, TheTimeoutLimitsTheWholeCommand) {
  ToolRun tool;
  tool({"barrier", "g", "--rank", "0", "--world-size", "1", "--timeout", "90s"});
  EXPECT_EQ(tool.fake.join_options.join_timeout, absl::Seconds(90));
  EXPECT_EQ(tool.fake.join_options.timeout, absl::Seconds(90));
  tool({"barrier", "g", "--rank", "0", "--world-size", "1"});
  EXPECT_EQ(tool.fake.join_options.join_timeout, absl::Seconds(30));
}

}  // namespace
}  // namespace cohort::cli
