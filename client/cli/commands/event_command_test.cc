// Runs real commands at events of a group, by /bin/sh.
#include "client/cli/commands/event_command.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "client/cli/testing/tool_run.h"
#include "gmock/gmock.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;

client::GroupEvent LostRank(int64_t revision, int rank) {
  client::GroupEvent event;
  event.revision = revision;
  event.kind = client::EventKind::kLost;
  event.generation = 4;
  event.member = absl::StrCat("rank-", rank);
  event.rank = rank;
  event.cause.kind = client::CauseKind::kConnectionLost;
  event.cause.member = event.member;
  event.cause.rank = rank;
  event.cause.host = "host-a";
  event.cause.detail = "its connection broke";
  return event;
}

class EventCommandTest : public testing::Test {
 protected:
  EventCommandTest() : folder_(absl::StrCat(testing::TempDir(), "/event_command.XXXXXX")) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("FOLDER", folder_.c_str(), 1);
  }

  std::string Read(const std::string& name) const {
    std::ifstream in(absl::StrCat(folder_, "/", name));
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string folder_;
};

TEST_F(EventCommandTest, TheCommandHasTheFactsOfTheEventInItsEnvironment) {
  // A pod's own rank is not that of the event.
  setenv("COHORT_RANK", "17", 1);
  unsetenv("COHORT_TORCH");  // tests/run.sh sets it
  EventCommand command("env | grep ^COHORT_ | sort > $FOLDER/facts", absl::Seconds(30),
                       {"COHORT_GROUP=weights"});
  EXPECT_EQ(command.Run(LostRank(12, 3)), absl::OkStatus());
  EXPECT_EQ(Read("facts"),
            "COHORT_CAUSE=connection_lost\n"
            "COHORT_EVENT=lost\n"
            "COHORT_GENERATION=4\n"
            "COHORT_GROUP=weights\n"
            "COHORT_HOST=host-a\n"
            "COHORT_MEMBER=rank-3\n"
            "COHORT_RANK=3\n"
            "COHORT_REASON=its connection broke\n"
            "COHORT_REVISION=12\n");
  unsetenv("COHORT_RANK");
}

TEST_F(EventCommandTest, AnEventWithoutAMemberHasThatOfItsCause) {
  client::GroupEvent broken = LostRank(13, 3);
  broken.kind = client::EventKind::kBroken;
  broken.member = "";
  broken.rank = std::nullopt;
  const std::vector<std::string> facts = VariablesOf(broken);
  EXPECT_THAT(facts, testing::IsSupersetOf({"COHORT_EVENT=broken", "COHORT_RANK=3",
                                            "COHORT_MEMBER=rank-3", "COHORT_HOST=host-a"}));
  // A host belongs to the member that the other variables name.
  client::GroupEvent left = LostRank(14, 3);
  left.member = "rank-0";
  left.rank = 0;
  EXPECT_THAT(VariablesOf(left), testing::IsSupersetOf({"COHORT_RANK=0", "COHORT_HOST="}));
  EXPECT_THAT(VariablesOf(client::GroupEvent()),
              testing::IsSupersetOf({"COHORT_RANK=", "COHORT_CAUSE=", "COHORT_REASON="}));
}

TEST_F(EventCommandTest, TextsOfOthersAreNoCommands) {
  client::GroupEvent event = LostRank(12, 3);
  event.member = "$(touch $FOLDER/injected)";
  event.cause.detail = "'; touch $FOLDER/injected; echo '\n`touch $FOLDER/injected`";
  EventCommand command("printf %s \"$COHORT_MEMBER\" > $FOLDER/member; : $COHORT_REASON",
                       absl::Seconds(30), {});
  EXPECT_EQ(command.Run(event), absl::OkStatus());
  EXPECT_EQ(Read("member"), "$(touch $FOLDER/injected)");
  EXPECT_NE(access(absl::StrCat(folder_, "/injected").c_str(), F_OK), 0);
}

TEST_F(EventCommandTest, AFailureSaysHowTheCommandEnded) {
  EXPECT_EQ(EventCommand("exit 7", absl::Seconds(30), {}).Run(LostRank(1, 1)).message(),
            "the command exited with 7");
  EXPECT_EQ(EventCommand("kill -9 $$", absl::Seconds(30), {}).Run(LostRank(1, 1)).message(),
            "the command was killed by signal 9");
  EXPECT_EQ(EventCommand("no-such-program", absl::Seconds(30), {}).Run(LostRank(1, 1)).message(),
            "the command exited with 127");
}

TEST_F(EventCommandTest, ALateCommandEndsWithItsChildren) {
  // The shell and its child ignore SIGTERM.
  EventCommand command("trap '' TERM; sleep 1000 & echo $! > $FOLDER/child; wait; sleep 1000",
                       absl::Milliseconds(300), {});
  const Instant begin = Clock::Steady().Now();
  const absl::Status status = command.Run(LostRank(1, 1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(status.message(), "the command took longer than 300ms");
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(60));
  int child = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Read("child"), &child));
  // Another process reaps it, so it may be gone already.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  pollfd end = {process.get(), POLLIN, 0};
  EXPECT_TRUE(!process.is_open() || poll(&end, 1, 30'000) == 1) << child << " still runs";
}

TEST_F(EventCommandTest, StopEndsTheCommandAndStartsNoOther) {
  // The command and its reader meet at a named pipe.
  ASSERT_EQ(mkfifo(absl::StrCat(folder_, "/running").c_str(), 0600), 0);
  EventCommand command("echo running > $FOLDER/running; sleep 1000", absl::Seconds(1000), {});
  std::thread stopper([&] {
    EXPECT_EQ(Read("running"), "running\n");
    command.Stop();
  });
  EXPECT_EQ(command.Run(LostRank(1, 1)).message(), "the command was killed by signal 15");
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(command.Run(LostRank(2, 1))));
}

TEST_F(EventCommandTest, TheWatchRunsItForEachEventInOrder) {
  ToolRun tool;
  tool.fake.group_events = {LostRank(5, 3), LostRank(6, 1), LostRank(7, 2)};
  const ToolResult result = tool({"group", "watch", "g", "--coordinator", "there:7700", "--exec",
                                  "echo $COHORT_GROUP $COHORT_COORDINATOR $COHORT_REVISION "
                                  "$COHORT_RANK >> $FOLDER/order"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(Read("order"), "g there:7700 5 3\ng there:7700 6 1\ng there:7700 7 2\n");
  EXPECT_THAT(result.out, HasSubstr("rev 7  generation 4  lost  rank 2 (rank-2)"));
  EXPECT_EQ(tool.interrupts_set, 1);
  EXPECT_EQ(tool.interrupt_balance, 0);
}

TEST_F(EventCommandTest, TheWatchGoesOnAfterAFailureAndReportsItAtItsEnd) {
  ToolRun tool;
  tool.fake.group_events = {LostRank(5, 3), LostRank(6, 1), LostRank(7, 2)};
  const ToolResult result =
      tool({"group", "watch", "g", "--exec-timeout", "300ms", "--exec",
            "echo $COHORT_RANK >> $FOLDER/ran; [ $COHORT_RANK != 1 ] || exit 9; "
            "[ $COHORT_RANK != 2 ] || sleep 1000"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(Read("ran"), "3\n1\n2\n");
  EXPECT_EQ(result.err,
            "cohort: --exec at revision 6 (lost): the command exited with 9; watching on\n"
            "cohort: --exec at revision 7 (lost): the command took longer than 300ms; watching "
            "on\n");
}

}  // namespace
}  // namespace cohort::cli
