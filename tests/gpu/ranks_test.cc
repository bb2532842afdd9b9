// Ranks in processes of their own that share one GPU, and the results when they disagree, are
// killed or are stopped. The same tests on host memory prove the test where there is no GPU.
//
// The tests check results and errors, not times: ranks on one device get time slices of
// milliseconds.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The build sets COHORT_TEST_BACKEND to "host" or "device".
constexpr absl::string_view kBackend = COHORT_TEST_BACKEND;
constexpr bool kOnDevice = kBackend == "device";

constexpr int kNoDevice = 3;  // exit status of a probe
// The limit for joining, forming and the table; only a hang reaches it.
constexpr absl::Duration kLong = absl::Seconds(150);
// A rank's process ends itself after this time.
constexpr int kLimitSeconds = 200;
// How many of the table's some 2500 cells run, chosen at random. collective_table_test runs all.
constexpr int kTableCells = 1000;
// The timeout of calls in which a rank is missing. On a device the first call connects the ranks.
constexpr absl::Duration kDeadline = kOnDevice ? absl::Seconds(10) : absl::Seconds(2);
// All ranks must get the error within this time after the deadline.
constexpr absl::Duration kGrace = absl::Seconds(2);

std::string RankProgram() { return ProgramPath("worker/group/testing/rank_program/rank_program"); }

// Returns why ranks cannot run here; empty if they can.
const std::string& WhyNotHere() {
  static const auto* const why = new std::string([] {
    ChildProcess probe({RankProgram(), "--backend", std::string(kBackend), "--probe"});
    const std::string line = probe.ReadLine(kLong).value_or("no answer");
    const absl::StatusOr<int> status = probe.Wait(kLong);
    if (status.ok() && *status == 0) return std::string();
    EXPECT_EQ(status.value_or(-1), kNoDevice) << line << "\n" << probe.ErrorText();
    return line;
  }());
  return *why;
}

bool IsStopped(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  while (file >> word) {
    if (word == "State:" && file >> word) return word == "T";
  }
  return false;
}

// Returns a port that no process listens on now.
int FreePort() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

class RanksTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!WhyNotHere().empty()) GTEST_SKIP() << "needs a GPU: " << WhyNotHere();
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  // Starts all ranks, and reads that they have joined.
  void Start(absl::Duration deadline, const std::string& ras = "") {
    ranks_.clear();
    for (int rank = 0; rank < size(); ++rank) {
      ranks_.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
          RankProgram(), "--backend", std::string(kBackend), "--coordinator",
          coordinator_.address(), "--group", "ranks", "--rank", absl::StrCat(rank), "--ranks",
          absl::StrCat(size()), "--deadline-ms", absl::StrCat(absl::ToInt64Milliseconds(deadline)),
          "--limit-s", absl::StrCat(kLimitSeconds), "--ras", ras}));
    }
    for (int rank = 0; rank < size(); ++rank) {
      ASSERT_EQ(Line(rank, kLong), absl::StrCat("joined ", rank, " ", size(), " 1"));
    }
  }

  int size() const { return GetParam(); }
  ChildProcess& process(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  std::vector<int> Others(int victim) const {
    std::vector<int> others;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != victim) others.push_back(rank);
    }
    return others;
  }
  std::vector<int> All() const { return Others(-1); }
  static unsigned Random() {
    static std::mt19937 random(static_cast<uint32_t>(TestSeed()));
    return static_cast<unsigned>(random());
  }
  int AnyRank() const { return static_cast<int>(Random() % static_cast<unsigned>(size())); }

  void SendCommand(const std::vector<int>& ranks, const std::string& command) {
    for (const int rank : ranks) process(rank).WriteLine(command);
  }
  std::string Line(int rank, absl::Duration timeout) {
    const absl::StatusOr<std::string> line = process(rank).ReadLine(timeout);
    EXPECT_TRUE(line.ok()) << "rank " << rank << ": " << line.status() << "\n"
                           << process(rank).ErrorText();
    return line.value_or("nothing");
  }
  // Returns each rank's answer to `command`.
  std::vector<std::string> Ask(const std::vector<int>& ranks, const std::string& command) {
    SendCommand(ranks, command);
    std::vector<std::string> lines;
    for (const int rank : ranks) lines.push_back(Line(rank, kLong));
    return lines;
  }
  // Expects that all ranks answer the same, and that it is a success.
  void ExpectAlike(const std::vector<int>& ranks, const std::string& command) {
    const std::vector<std::string> lines = Ask(ranks, command);
    for (const std::string& line : lines) {
      EXPECT_THAT(line, StartsWith("OK "));
      EXPECT_EQ(line, lines[0]) << "not the same bits on all ranks";
    }
  }
  // All ranks reduce in a loop, with one element or many.
  void StartLoops() {
    const int counts[] = {1, 1 << 16, 1 << 22};
    SendCommand(All(), absl::StrCat("loop ", counts[Random() % 3]));
    for (const int rank : All()) ASSERT_EQ(Line(rank, kLong), "running");
  }

  // The remaining ranks go on without the others, in the next generation.
  void GoOn(const std::vector<int>& ranks) {
    const std::vector<std::string> lines = Ask(ranks, "rejoin");
    for (size_t i = 0; i < ranks.size(); ++i) {
      EXPECT_EQ(lines[i], absl::StrCat("OK ", i, " ", ranks.size(), " 2"));
    }
    ExpectAlike(ranks, "sum");
    ExpectAlike(ranks, "sum");
  }
  void Leave(const std::vector<int>& ranks) {
    SendCommand(ranks, "leave");
    for (const int rank : ranks) {
      const absl::StatusOr<int> status = process(rank).Wait(kLong);
      EXPECT_TRUE(status.ok() && *status == 0) << "rank " << rank << ": " << status.status()
                                               << ", exit status " << status.value_or(-1) << "\n"
                                               << process(rank).ErrorText();
    }
  }

  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

TEST_P(RanksTest, EveryCollectiveHasTheRightResult) {
  ASSERT_NO_FATAL_FAILURE(Start(kLong));
  const std::string table =
      absl::StrCat("table ", static_cast<uint32_t>(TestSeed()), " ", kTableCells);
  const std::vector<std::string> lines = Ask(All(), table);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, StartsWith("OK "));
    EXPECT_EQ(line, lines[0]) << "not the same bits on all ranks";
  }
  std::cout << lines[0] << std::endl;
  Leave(All());
}

TEST_P(RanksTest, AMismatchIsReportedAndTheGroupWorksOn) {
  ASSERT_NO_FATAL_FAILURE(Start(kLong));
  for (const char* const what : {"collective", "op", "type", "count", "root"}) {
    SCOPED_TRACE(what);
    const std::vector<std::string> lines = Ask(All(), absl::StrCat("disagree ", what));
    for (const std::string& line : lines) {
      EXPECT_THAT(line, StartsWith("INVALID_ARGUMENT "));
      EXPECT_THAT(line, HasSubstr("rank 0 "));
      EXPECT_THAT(line, HasSubstr(absl::StrCat("rank ", size() - 1, " ")));
      EXPECT_EQ(line, lines[0]);
    }
    ExpectAlike(All(), "sum");
  }
  Leave(All());
}

TEST_P(RanksTest, ARankThatIsKilledIsNamedAndTheOthersGoOn) {
  ASSERT_NO_FATAL_FAILURE(Start(kDeadline));
  ASSERT_NO_FATAL_FAILURE(StartLoops());
  const int victim = AnyRank();
  process(victim).Kill();
  const Instant latest = Clock::Steady().Now() + kDeadline + kGrace;
  for (const int rank : Others(victim)) {
    const std::string line = Line(rank, latest - Clock::Steady().Now());
    EXPECT_THAT(line, AnyOf(StartsWith("ABORTED "), StartsWith("DEADLINE_EXCEEDED ")));
    EXPECT_THAT(line, HasSubstr(absl::StrCat("rank ", victim, " ")));
  }
  GoOn(Others(victim));
  Leave(Others(victim));
}

TEST_P(RanksTest, RecordedCallsMatchDirectCalls) {
  ASSERT_NO_FATAL_FAILURE(Start(kLong));
  for (int round = 0; round < 3; ++round) {
    ExpectAlike(All(), "replay");
    ExpectAlike(All(), "sum");
  }
  Leave(All());
}

TEST_P(RanksTest, ARankThatDoesNotComeIsNamedByTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(Start(kDeadline));
  const int victim = AnyRank();
  SendCommand(Others(victim), "loop 65536");
  SendCommand({victim}, "loop 65536 20");
  for (const int rank : All()) ASSERT_EQ(Line(rank, kLong), "running");
  const pid_t pid = process(victim).pid();
  ASSERT_TRUE(Eventually([pid] { return IsStopped(pid); }));
  const Instant latest = Clock::Steady().Now() + kDeadline + kGrace;
  bool late = false;
  for (const int rank : Others(victim)) {
    const std::string line = Line(rank, latest - Clock::Steady().Now());
    late = late || absl::StartsWith(line, "DEADLINE_EXCEEDED ");
    EXPECT_THAT(line, AnyOf(StartsWith("ABORTED "), StartsWith("DEADLINE_EXCEEDED ")));
    EXPECT_THAT(line, HasSubstr(absl::StrCat("rank ", victim, " did not come")));
  }
  EXPECT_TRUE(late);
  process(victim).Kill();
  GoOn(Others(victim));
  Leave(Others(victim));
}

// A rank may be stopped while the devices are at work. The error then does not always name it, but
// all ranks get one, and the rank can come back.
TEST_P(RanksTest, ARankThatStandsStillForAWhileComesBack) {
  ASSERT_NO_FATAL_FAILURE(Start(kDeadline));
  ASSERT_NO_FATAL_FAILURE(StartLoops());
  const int victim = AnyRank();
  process(victim).Signal(SIGSTOP);
  const Instant latest = Clock::Steady().Now() + kDeadline + kGrace;
  for (const int rank : Others(victim)) {
    const std::string line = Line(rank, latest - Clock::Steady().Now());
    EXPECT_THAT(line, AnyOf(StartsWith("ABORTED "), StartsWith("DEADLINE_EXCEEDED ")));
    if (!kOnDevice) {
      EXPECT_THAT(line, HasSubstr(absl::StrCat("rank ", victim, " ")));
    }
  }
  process(victim).Signal(SIGCONT);
  EXPECT_THAT(Line(victim, kLong), AnyOf(StartsWith("ABORTED "), StartsWith("DEADLINE_EXCEEDED ")));
  GoOn(All());
  Leave(All());
}

TEST_P(RanksTest, NcclItselfSaysThatAllAreThere) {
  const std::string address = absl::StrCat("127.0.0.1:", FreePort());
  ASSERT_NO_FATAL_FAILURE(Start(kLong, address));
  ExpectAlike(All(), "sum");
  if (!kOnDevice) {
    EXPECT_THAT(Ask({0}, "ras")[0], AllOf(StartsWith("UNAVAILABLE "), HasSubstr(address)));
    return;
  }
  std::string said;
  EXPECT_TRUE(Eventually([&] {
    said = Ask({0}, "ras")[0];
    return absl::StartsWith(said,
                            absl::StrCat("OK 1 communicators, ", size(), " ranks, 0 missing"));
  })) << said;
  Leave(All());
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, ::testing::Values(2, 3));

}  // namespace
}  // namespace cohort::testing
