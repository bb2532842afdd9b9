// A worker daemon or its client is killed in the middle of a collective. The other ranks get an
// error that names the rank, at once. Its own client or worker learns which process died. All form
// the next generation.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

constexpr int kSize = 3;

// The processes that run the collectives: "attached", the clients; "remote", the workers. And
// whether ranks share memory or use sockets.
struct Form {
  std::string name;
  bool sockets = false;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class WorkerKilledTest : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(&folder_[0]), nullptr);
    ASSERT_TRUE(coordinator_.Start().ok());
    for (int rank = 0; rank < kSize; ++rank) {
      StartWorker(rank);
      StartClient(rank);
    }
    ExpectAll("joined");
  }
  void TearDown() override {
    for (auto& worker : workers_) worker.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Socket(int rank) const { return absl::StrCat("unix:", folder_, "/worker-", rank); }

  void StartWorker(int rank) {
    std::vector<std::string> command = {"worker/daemon/cohort-worker",
                                        "--coordinator",
                                        coordinator_.address(),
                                        "--listen",
                                        Socket(rank),
                                        "--metrics-listen",
                                        ""};
    if (GetParam().sockets) {
      command.insert(command.end(), {"--host-identity", absl::StrCat("host-", rank)});
    }
    workers_[rank] = std::make_unique<ChildProcess>(std::move(command));
  }

  void StartClient(int rank) {
    clients_[rank] = std::make_unique<ChildProcess>(std::vector<std::string>{
        "tests/failure/testing/rank_main", coordinator_.address(), "group", absl::StrCat(rank),
        absl::StrCat(kSize), "timeout_ms=60000", absl::StrCat(GetParam().name, "=", Socket(rank))});
  }

  std::string Line(int rank) {
    const absl::StatusOr<std::string> line = clients_[rank]->ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << "rank " << rank << ": " << line.status() << "\n"
                           << clients_[rank]->ErrorText() << workers_[rank]->ErrorText();
    return line.value_or("nothing");
  }
  void SendCommand(const std::string& command, int but = -1) {
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != but) clients_[rank]->WriteLine(command);
    }
  }
  void ExpectAll(const std::string& beginning) {
    for (int rank = 0; rank < kSize; ++rank) EXPECT_THAT(Line(rank), StartsWith(beginning));
  }
  void ExpectNamed(int victim, Instant killed) {
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == victim) continue;
      const std::string line = Line(rank);
      EXPECT_THAT(line, StartsWith("ABORTED "));
      EXPECT_THAT(line, HasSubstr(absl::StrCat("rank ", victim, " ")));
    }
    const absl::Duration took = Clock::Steady().Now() - killed;
    slowest_ = std::max(slowest_, took);
    EXPECT_LT(took, absl::Seconds(1));
  }
  void Reform(int victim, const std::string& what) {
    SendCommand("rejoin", victim);
    for (int rank = 0; rank < kSize; ++rank) {
      EXPECT_THAT(Line(rank), StartsWith(rank == victim ? "joined" : "OK"));
    }
    SendCommand(absl::StrCat("once ", what));
    ExpectAll("OK");
  }

  // A socket's path has room for little more than a hundred bytes.
  std::string folder_ = "/tmp/cohort-XXXXXX";
  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::unique_ptr<ChildProcess> workers_[kSize];
  std::unique_ptr<ChildProcess> clients_[kSize];
  absl::Duration slowest_;
  std::mt19937 random_{static_cast<uint32_t>(testing::TestSeed())};
};

const std::vector<std::string> kWorks = {"all_reduce 8 plain", "all_gather 65536 registered",
                                         "all_reduce 3000000 registered", "exchange 300000 plain",
                                         "broadcast 3000000 plain"};

TEST_P(WorkerKilledTest, TheClientDies) {
  for (const std::string& what : kWorks) {
    if (HasFailure()) return;
    const int victim = static_cast<int>(random_() % kSize);
    SCOPED_TRACE(absl::StrCat(what, ", rank ", victim));
    SendCommand(absl::StrCat("loop ", what));
    ExpectAll("running");
    const Instant killed = Clock::Steady().Now();
    clients_[victim]->Kill();
    ExpectNamed(victim, killed);
    StartClient(victim);
    Reform(victim, what);
  }
  std::cout << "kill -9 of a client to the last of the others told, at worst: " << slowest_
            << std::endl;
}

TEST_P(WorkerKilledTest, TheWorkerDies) {
  for (const std::string& what : kWorks) {
    if (HasFailure()) return;
    const int victim = static_cast<int>(random_() % kSize);
    SCOPED_TRACE(absl::StrCat(what, ", rank ", victim));
    SendCommand(absl::StrCat("loop ", what));
    ExpectAll("running");
    const Instant killed = Clock::Steady().Now();
    workers_[victim]->Kill();
    const std::string own = Line(victim);
    EXPECT_THAT(own, StartsWith("ABORTED "));
    // The client learns it from its session, or from another rank that was quicker.
    EXPECT_THAT(own, AnyOf(HasSubstr("the worker at unix:"),
                           HasSubstr(absl::StrCat("rank ", victim, " is gone: its process ",
                                                  workers_[victim]->pid()))));
    ExpectNamed(victim, killed);
    // The dead worker's socket file is still there.
    clients_[victim]->Kill();
    StartWorker(victim);
    StartClient(victim);
    Reform(victim, what);
  }
  std::cout << "kill -9 of a worker to the last of the others told, at worst: " << slowest_
            << std::endl;
}

TEST_P(WorkerKilledTest, AWorkerThatIsAskedToEndSaysSo) {
  if (HasFailure()) return;
  SendCommand("loop all_reduce 65536 registered");
  ExpectAll("running");
  workers_[1]->Signal(SIGTERM);
  for (int rank = 0; rank < kSize; ++rank) {
    const std::string line = Line(rank);
    EXPECT_THAT(line, StartsWith("ABORTED "));
    EXPECT_THAT(line, HasSubstr("drain"));
  }
  const absl::StatusOr<int> exit = workers_[1]->Wait(kTimeout);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(*exit, 0);
}

INSTANTIATE_TEST_SUITE_P(Forms, WorkerKilledTest,
                         ::testing::Values(Form{"attached"}, Form{"attached", true}, Form{"remote"},
                                           Form{"remote", true}),
                         [](const ::testing::TestParamInfo<Form>& info) {
                           return info.param.name + (info.param.sockets ? "BySockets" : "ByMemory");
                         });

}  // namespace
}  // namespace cohort
