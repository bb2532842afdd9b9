// A rank is killed or stopped in the middle of a collective. The others get an error that names it,
// at once, and form the next generation with its replacement.
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using ::testing::AnyOf;
using testing::ChildProcess;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using ::testing::StartsWith;

constexpr int kSize = 4;

class RankKilledTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(coordinator_.Start().ok()); }

  // Ranks with different values of `host` share no memory.
  void Start(int rank, const std::string& host = "", const std::string& more = "timeout_ms=60000") {
    std::vector<std::string> command = {"tests/failure/testing/rank_main",
                                        coordinator_.address(),
                                        "group",
                                        absl::StrCat(rank),
                                        absl::StrCat(kSize),
                                        more};
    if (!host.empty()) command.push_back(absl::StrCat("host=", host));
    ranks_[rank] = std::make_unique<ChildProcess>(std::move(command));
  }

  // Returns every rank's next line.
  std::vector<std::string> Lines(int but = -1) {
    std::vector<std::string> lines(kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == but) continue;
      const absl::StatusOr<std::string> line = ranks_[rank]->ReadLine(kTimeout);
      EXPECT_TRUE(line.ok()) << "rank " << rank << ": " << line.status() << "\n"
                             << ranks_[rank]->ErrorText();
      lines[rank] = line.value_or("nothing");
    }
    return lines;
  }

  void SendCommand(const std::string& command, int but = -1) {
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != but) ranks_[rank]->WriteLine(command);
    }
  }

  void ExpectAll(const std::string& beginning) {
    for (const std::string& line : Lines()) EXPECT_THAT(line, StartsWith(beginning));
  }

  // `what`: operation, bytes, memory.
  void KillInTheMiddle(const std::string& what, int victim, const std::string& host = "") {
    SCOPED_TRACE(absl::StrCat(what, ", rank ", victim));
    SendCommand(absl::StrCat("loop ", what));
    ExpectAll("running");
    const Instant killed = Clock::Steady().Now();
    ranks_[victim]->Kill();
    const std::vector<std::string> lines = Lines(victim);
    const absl::Duration took = Clock::Steady().Now() - killed;
    slowest_ = std::max(slowest_, took);
    EXPECT_LT(took, absl::Seconds(1));
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(lines[rank], StartsWith("ABORTED "));
      EXPECT_THAT(lines[rank], HasSubstr(absl::StrCat("rank ", victim, " ")));
    }
    Start(victim, host);
    SendCommand("rejoin", victim);
    ++generation_;
    const std::vector<std::string> joined = Lines();
    for (int rank = 0; rank < kSize; ++rank) {
      EXPECT_THAT(joined[rank], StartsWith(rank == victim ? absl::StrCat("joined ", rank, " ",
                                                                         kSize, " ", generation_)
                                                          : "OK"));
    }
    SendCommand(absl::StrCat("once ", what));
    ExpectAll("OK");
  }

  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::unique_ptr<ChildProcess> ranks_[kSize];
  int64_t generation_ = 1;
  absl::Duration slowest_;
};

TEST_F(RankKilledTest, InEveryOperationAndSizeOnOneHost) {
  for (int rank = 0; rank < kSize; ++rank) Start(rank);
  for (const std::string& line : Lines()) EXPECT_THAT(line, HasSubstr("shared memory"));
  std::mt19937 random(static_cast<uint32_t>(testing::TestSeed()));
  for (const char* const operation :
       {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "exchange"}) {
    for (const char* const size :
         {"8 plain", "4096 plain", "65536 registered", "3000000 plain", "20000000 registered"}) {
      KillInTheMiddle(absl::StrCat(operation, " ", size), static_cast<int>(random() % kSize));
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
  std::cout << "kill -9 to the last of the others told, at worst: " << slowest_ << std::endl;
}

TEST_F(RankKilledTest, BetweenHosts) {
  const std::string hosts[] = {"a", "b", "c", "d"};
  const char* const between_hosts = std::getenv("COHORT_TLS_CA") == nullptr ? "tcp " : "tls ";
  for (int rank = 0; rank < kSize; ++rank) Start(rank, hosts[rank]);
  for (const std::string& line : Lines()) EXPECT_THAT(line, HasSubstr(between_hosts));
  std::mt19937 random(static_cast<uint32_t>(testing::TestSeed()));
  for (const char* const what : {"all_reduce 8 plain", "all_reduce 3000000 registered",
                                 "broadcast 3000000 plain", "exchange 300000 plain"}) {
    const int victim = static_cast<int>(random() % kSize);
    KillInTheMiddle(what, victim, hosts[victim]);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  std::cout << "kill -9 to the last of the others told, at worst: " << slowest_ << std::endl;
}

// The child keeps open all sockets by which others might notice the death.
TEST_F(RankKilledTest, ThoughItsChildKeepsItsConnections) {
  constexpr int kVictim = 2;
  for (int rank = 0; rank < kSize; ++rank) Start(rank);
  for (const std::string& line : Lines()) EXPECT_THAT(line, HasSubstr("shared memory"));
  ranks_[kVictim]->WriteLine("child");
  EXPECT_THAT(ranks_[kVictim]->ReadLine(kTimeout).value_or("nothing"), StartsWith("OK"));
  SendCommand("loop all_reduce 4096 plain");
  ExpectAll("running");
  ranks_[kVictim]->Kill();
  for (const std::string& line : Lines(kVictim)) {
    if (line.empty()) continue;  // the victim's
    EXPECT_THAT(line, StartsWith("ABORTED "));
    EXPECT_THAT(line, HasSubstr(absl::StrCat("rank 2 is gone: its process ", ranks_[kVictim]->pid(),
                                             " ended")));
  }
}

// While no process takes the dead rank's place, calls fail and say so; a later Rejoin succeeds.
TEST_F(RankKilledTest, ARejoinThatFailsMayBeRepeated) {
  constexpr int kVictim = 3;
  for (int rank = 0; rank < kSize; ++rank) Start(rank);
  ExpectAll("joined");
  ranks_[kVictim]->Kill();
  SendCommand("rejoin 300", kVictim);
  Lines(kVictim);
  SendCommand("once all_reduce 4096 plain", kVictim);
  for (const std::string& line : Lines(kVictim)) {
    EXPECT_THAT(line, AnyOf("", HasSubstr("Rejoin has failed")));
  }
  Start(kVictim);
  SendCommand("rejoin", kVictim);
  Lines();
  SendCommand("once all_reduce 4096 plain");
  ExpectAll("OK");
}

TEST_F(RankKilledTest, AStoppedRankIsNamedByTheCallsDeadline) {
  constexpr int kVictim = 2;
  for (int rank = 0; rank < kSize; ++rank) Start(rank, "", "timeout_ms=1500");
  ExpectAll("joined");
  SendCommand("loop all_reduce 65536 plain");
  ExpectAll("running");
  ranks_[kVictim]->Signal(SIGSTOP);
  bool late = false;
  for (const std::string& line : Lines(kVictim)) {
    if (line.empty()) continue;
    late = late || absl::StartsWith(line, "DEADLINE_EXCEEDED");
    EXPECT_THAT(line, AnyOf(StartsWith("DEADLINE_EXCEEDED"), StartsWith("ABORTED")));
    EXPECT_THAT(line, HasSubstr("rank 2 did not come"));
  }
  EXPECT_TRUE(late);
  // Once the rank runs again, it gets the error as well, and all go on in the next generation.
  ranks_[kVictim]->Signal(SIGCONT);
  EXPECT_THAT(ranks_[kVictim]->ReadLine(kTimeout).value_or("nothing"), StartsWith("ABORTED"));
  SendCommand("rejoin");
  ExpectAll("OK");
  SendCommand("once all_reduce 65536 plain");
  ExpectAll("OK");
}

}  // namespace
}  // namespace cohort
