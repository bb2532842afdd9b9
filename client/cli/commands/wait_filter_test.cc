// The waits that the flags of `cohort who-is-missing` select, and the exit codes of probes.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/testing/tool_run.h"
#include "client/rendezvous/report/report.h"
#include "gmock/gmock.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class WaitFilterTest : public testing::Test {
 protected:
  WaitFilterTest() {
    report_.group = "trainer";
    report_.generation = 3;
    report_.state = client::GroupState::kActive;
    report_.world_size = 4;
    report_.covers_tensors = true;
  }

  int Code(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"who-is-missing", "trainer"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    last_ = tool_(arguments);
    return last_.code;
  }
  // Adds a barrier that misses ranks `first` to `last`.
  void AddBarrier(int first, int last, absl::Duration age) {
    client::OpenWait wait;
    wait.operation = "barrier \"step\" #812";
    wait.age = age;
    wait.remaining = absl::InfiniteDuration();
    wait.missing.expected_count = 4;
    wait.missing.arrived_count = 3 - (last - first);
    wait.missing.missing = {{first, last}};
    report_.waits.push_back(wait);
  }

  ToolRun tool_;
  client::WhoIsMissingReport& report_ = tool_.fake.who_is_missing;
  ToolResult last_;
};

TEST_F(WaitFilterTest, YoungerWaitsDoNotCount) {
  AddBarrier(3, 3, absl::Seconds(12));
  EXPECT_EQ(Code({"--older-than", "30s"}), 0);
  EXPECT_EQ(last_.out,
            "group trainer, generation 3, active, 4 ranks\n"
            "no wait is open for 30s or longer\n");
  EXPECT_EQ(Code({"--older-than", "30s", "--json"}), 0);
  EXPECT_THAT(last_.out, HasSubstr(R"("waits":[],)"));
  AddBarrier(2, 2, absl::Seconds(30));
  EXPECT_EQ(Code({"--older-than", "30s"}), 3);
  EXPECT_THAT(last_.out, HasSubstr("1 of 4 missing: rank 2; open for 30s"));
  EXPECT_THAT(last_.out, Not(HasSubstr("rank 3")));
}

TEST_F(WaitFilterTest, ARankIsHeldResponsibleForWaitsThatMissIt) {
  AddBarrier(1, 2, absl::Seconds(12));
  EXPECT_EQ(Code({"--rank", "1"}), 3);
  EXPECT_EQ(Code({"--rank", "2"}), 3);
  EXPECT_EQ(Code({"--rank", "0"}), 0) << "it waits itself";
  EXPECT_EQ(last_.out,
            "group trainer, generation 3, active, 4 ranks\n"
            "no wait for rank 0 is open\n");
  EXPECT_EQ(Code({"--rank", "1", "--older-than", "30s"}), 0);
  EXPECT_THAT(last_.out, HasSubstr("no wait for rank 1 is open for 30s or longer\n"));
}

TEST_F(WaitFilterTest, TheRankSelfIsThatOfTheEnvironment) {
  AddBarrier(3, 3, absl::Seconds(12));
  tool_.rank_variable = "3";
  EXPECT_EQ(Code({"--rank", "self"}), 3);
  tool_.rank_variable = "2";
  EXPECT_EQ(Code({"--rank", "self"}), 0);
  tool_.rank_variable = "";
  EXPECT_EQ(Code({"--rank", "self", "--probe"}), 2) << "a wrong probe is not a healthy pod";
  EXPECT_THAT(last_.err, HasSubstr("--rank self: expected a rank in $COHORT_RANK, got ''"));
  EXPECT_EQ(Code({"--rank", "-1"}), 2);
  EXPECT_EQ(Code({"--rank", "two"}), 2);
  EXPECT_THAT(last_.err, HasSubstr("--rank two: expected a rank or 'self', got 'two'"));
}

TEST_F(WaitFilterTest, TheRanksInsideAnOperationOnTensorsDoNotHoldItUp) {
  client::TensorWait wait;
  wait.operation = "all_reduce #42";
  wait.age = absl::Seconds(40);
  wait.missing.expected_count = 4;
  wait.missing.arrived_count = 3;
  wait.missing.missing = {{3, 3}};
  wait.inside = {{0, 2}};
  // Rank 0 sleeps for rank 1, which sleeps for rank 3.
  wait.waited_for = {{1, 1}, {3, 3}};
  report_.tensor_waits = {wait};
  EXPECT_EQ(Code({"--rank", "3", "--older-than", "40s"}), 3);
  EXPECT_EQ(Code({"--rank", "3", "--older-than", "41s"}), 0);
  EXPECT_EQ(Code({"--rank", "1"}), 0);

  // All ranks have come, and rank 2 is stuck inside. Rank 1 sleeps for it.
  report_.tensor_waits[0].missing.missing = {};
  report_.tensor_waits[0].waited_for = {{1, 2}};
  client::RankReport one;
  one.rank = 1;
  one.tensors.moves_tensors = true;
  one.tensors.waits_for = {{2, 2}};
  report_.ranks = {one};
  EXPECT_EQ(Code({"--rank", "1"}), 0);
  EXPECT_EQ(Code({"--rank", "2"}), 3);
  report_.unanswered = {{1, 1}};
  EXPECT_EQ(Code({"--rank", "1"}), 3) << "its report is from an earlier moment";
}

TEST_F(WaitFilterTest, ARankHoldsUpACommunicatorUntilItHasCalledInit) {
  report_.inits = {{"tensors",
                    {{1, "rank-1", "calling_init", "", absl::Seconds(50)},
                     {3, "rank-3", "not_reported", "", absl::ZeroDuration()}}}};
  EXPECT_EQ(Code({"--rank", "1"}), 0);
  EXPECT_EQ(Code({"--rank", "3", "--older-than", "50s"}), 3);
  EXPECT_EQ(Code({"--rank", "3", "--older-than", "51s"}), 0);
  EXPECT_EQ(Code({"--older-than", "50s"}), 3);
}

TEST_F(WaitFilterTest, ASilentMemberIsNoWait) {
  report_.unanswered = {{1, 1}};
  EXPECT_EQ(Code({}), 5);
  EXPECT_EQ(Code({"--older-than", "30s"}), 0);
  EXPECT_THAT(last_.out, HasSubstr("no wait is known to be open for 30s or longer\n"));
  EXPECT_THAT(last_.out, HasSubstr("rank 1 is doing now: asked, no answer"));
}

TEST_F(WaitFilterTest, AProbeFailsForAnOpenWaitAlone) {
  EXPECT_EQ(Code({"--probe"}), 0);
  AddBarrier(3, 3, absl::Seconds(12));
  EXPECT_EQ(Code({"--probe"}), 3);
  EXPECT_EQ(Code({"--probe", "--older-than", "30s"}), 0);

  report_.waits.clear();
  tool_.fake.stats.uptime = absl::Seconds(1);
  EXPECT_EQ(Code({"--older-than", "30s"}), 5);
  EXPECT_EQ(Code({"--older-than", "30s", "--probe"}), 0);

  for (const auto& [error, code] : {std::pair(absl::NotFoundError("there is no group trainer"), 4),
                                    std::pair(absl::UnavailableError("it is away"), 5)}) {
    tool_.fake.who_is_missing_error = error;
    EXPECT_EQ(Code({"--older-than", "30s"}), code);
    EXPECT_EQ(Code({"--older-than", "30s", "--probe"}), 0);
    EXPECT_THAT(last_.err, HasSubstr(std::string(error.message()) +
                                     "; the probe does not fail for this\n"));
  }
}

// It has a role in its tenant alone.
TEST_F(WaitFilterTest, AClientWithoutRightsToTheStatsIsAnsweredToo) {
  tool_.fake.stats_error = absl::PermissionDeniedError("ServerStats needs the role observer");
  EXPECT_EQ(Code({}), 0);
  AddBarrier(3, 3, absl::Seconds(12));
  EXPECT_EQ(Code({}), 3);
  EXPECT_EQ(Code({"--probe"}), 3);
}

TEST_F(WaitFilterTest, AnAsteriskStandsForAllGroupsThatBeginSo) {
  const auto code = [this](const std::string& group) {
    last_ = tool_({"who-is-missing", group});
    return last_.code;
  };
  EXPECT_EQ(code("torch-0-*"), 4);
  EXPECT_THAT(last_.err, HasSubstr("NOT_FOUND: no group's name begins with torch-0-\n"));
  tool_.fake.groups.resize(3);
  tool_.fake.groups[0].name = "torch-0-8b63";
  tool_.fake.groups[1].name = "torch-0-c92a";
  tool_.fake.groups[2].name = "torch-init/job";
  tool_.fake.calls.clear();
  EXPECT_EQ(code("torch-0-*"), 0);
  EXPECT_THAT(tool_.fake.calls,
              testing::ElementsAre("ListGroups()", "WhoIsMissing(torch-0-8b63, 2s)", "Stats()",
                                   "WhoIsMissing(torch-0-c92a, 2s)", "Stats()",
                                   "DumpWaits()"));
  AddBarrier(3, 3, absl::Seconds(12));
  EXPECT_EQ(code("torch-0-*"), 3);
  // A group that closes meanwhile does not count.
  tool_.fake.who_is_missing_error = absl::NotFoundError("it has closed");
  EXPECT_EQ(code("torch-0-*"), 4);
}

TEST_F(WaitFilterTest, AnOpenWaitOutweighsGroupsOfWhichNotAllIsKnown) {
  client::WhoIsMissingReport silent = report_;
  silent.unanswered = {{1, 1}};
  client::WhoIsMissingReport waits = report_;
  waits.waits.emplace_back();
  tool_.fake.groups.resize(2);
  tool_.fake.groups[0].name = "torch-0";
  tool_.fake.groups[1].name = "torch-1";
  const auto code = [this](const client::WhoIsMissingReport& first,
                           const client::WhoIsMissingReport& second) {
    tool_.fake.who_is_missing_of = {{"torch-0", first}, {"torch-1", second}};
    return tool_({"who-is-missing", "torch-*"}).code;
  };
  EXPECT_EQ(code(silent, waits), 3);
  EXPECT_EQ(code(waits, silent), 3);
  EXPECT_EQ(code(silent, report_), 5);
  EXPECT_EQ(code(report_, silent), 5);
}

TEST_F(WaitFilterTest, ARemarkLeadsToTheWaitsOfTcpStoreClients) {
  const std::string remark =
      "cohort: PyTorch's TCPStore clients of port 7700 have 1 open wait: see 'cohort waits "
      "--tenant tcpstore-7700'\n";
  tool_.fake.parked.resize(1);
  EXPECT_EQ(Code({}), 0);
  EXPECT_EQ(last_.err, remark);
  EXPECT_EQ(tool_.fake.connection.tenant, "tcpstore-7700");
  EXPECT_EQ(Code({"--coordinator", "unix:/coordinator"}), 0);
  EXPECT_EQ(last_.err, "") << "TCPStore clients have no such address";
  tool_.fake.who_is_missing_error = absl::NotFoundError("there is no group trainer");
  EXPECT_EQ(Code({}), 4);
  EXPECT_THAT(last_.err, HasSubstr(remark));
  tool_.fake.who_is_missing_error = absl::OkStatus();
  AddBarrier(3, 3, absl::Seconds(12));
  EXPECT_EQ(Code({}), 3);
  EXPECT_EQ(last_.err, "") << "the wait that was asked for is known";
}

TEST_F(WaitFilterTest, AProbeDoesNotWaitForNccl) {
  EXPECT_EQ(Code({"--probe"}), 0);
  EXPECT_EQ(tool_.nccl.timeout, absl::ZeroDuration());
  EXPECT_EQ(Code({"--probe", "--nccl-ras"}), 0);
  EXPECT_GT(tool_.nccl.timeout, absl::ZeroDuration());
}

}  // namespace
}  // namespace cohort::cli
