// The ranks run this test's own program, which decides by its arguments.
#include "client/cli/tensor_commands/rank_processes.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using Arguments = std::vector<std::vector<std::string>>;

std::vector<std::string> Rank(const std::string& what, const std::string& how = "") {
  return {"as-rank", what, how};
}

TEST(RankProcessesTest, AllMayEndWell) {
  auto ranks = RankProcesses::Start(Arguments{Rank("exit", "0"), Rank("exit", "0")});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_FALSE((*ranks)->Wait().has_value());
}

TEST(RankProcessesTest, AFailedRankIsNamedWithItsLastWords) {
  auto ranks =
      RankProcesses::Start(Arguments{Rank("exit", "6"), Rank("exit", "6"), Rank("complain", "3")});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const auto failure = (*ranks)->Wait();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_EQ(failure->words, "it hurts");
}

TEST(RankProcessesTest, AKilledRankIsBlamedBeforeOneThatExited) {
  auto ranks = RankProcesses::Start(Arguments{Rank("exit", "3"), Rank("kill"), Rank("exit", "6")});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const auto failure = (*ranks)->Wait();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->signal, SIGKILL);
}

TEST(RankProcessesTest, StopEndsThem) {
  auto ranks = RankProcesses::Start(Arguments{Rank("wait"), Rank("wait")});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const Instant begin = Clock::Steady().Now();
  std::thread stopper([&ranks] { (*ranks)->Stop(); });
  EXPECT_FALSE((*ranks)->Wait().has_value());
  stopper.join();
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(10));
}

TEST(RankProcessesTest, ARankThatIgnoresTheSignalIsKilled) {
  // The ranks inherit it, so that no signal comes too early for them.
  const auto before = std::signal(SIGTERM, SIG_IGN);
  auto ranks = RankProcesses::Start(Arguments{Rank("wait"), Rank("wait")});
  std::signal(SIGTERM, before);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const Instant begin = Clock::Steady().Now();
  ranks->reset();
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(10));
}

// Runs as a rank; returns the exit status.
int BeRank(const std::string& what, const std::string& how) {
  if (what == "complain") std::cerr << "first\ncohort: it hurts\n\n" << std::flush;
  if (what == "kill") kill(getpid(), SIGKILL);
  if (what == "wait") {
    // Its starter ends it; if that is broken, the alarm does.
    alarm(30);
    while (true) pause();
  }
  return std::atoi(how.c_str());
}

}  // namespace
}  // namespace cohort::cli

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "as-rank") == 0) {
    return cohort::cli::BeRank(argv[2], argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
