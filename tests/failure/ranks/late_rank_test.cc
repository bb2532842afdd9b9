// A rank comes late to a call: the metrics of the other ranks' workers name it while they wait.
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "client/collective/remote/worker_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::ChildProcess;
using testing::CoordinatorProcess;
using testing::kTimeout;
using ::testing::StartsWith;

constexpr int kSize = 3;
constexpr int kLate = 0;

// The processes that run the collectives: "attached", the clients; "remote", the workers. And
// whether ranks share memory or use sockets.
struct Form {
  std::string name;
  bool sockets = false;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

std::string Scrape(int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo("127.0.0.1", absl::StrCat(port).c_str(), &hints, &found) != 0) return "";
  const UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int connected = connect(fd.get(), found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (connected != 0 || send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string text;
  char part[4096];
  for (ssize_t size = 0; (size = recv(fd.get(), part, sizeof(part), 0)) > 0;) {
    text.append(part, static_cast<size_t>(size));
  }
  return text;
}

class LateRankTest : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(&folder_[0]), nullptr);
    ASSERT_TRUE(coordinator_.Start().ok());
    for (int rank = 0; rank < kSize; ++rank) {
      std::vector<std::string> command = {"worker/daemon/cohort-worker",
                                          "--coordinator",
                                          coordinator_.address(),
                                          "--listen",
                                          Socket(rank),
                                          "--metrics-listen",
                                          "127.0.0.1:0"};
      if (GetParam().sockets) {
        command.insert(command.end(), {"--host-identity", absl::StrCat("host-", rank)});
      }
      workers_[rank] = std::make_unique<ChildProcess>(std::move(command));
      clients_[rank] = std::make_unique<ChildProcess>(std::vector<std::string>{
          "tests/failure/testing/rank_main", coordinator_.address(), "group", absl::StrCat(rank),
          absl::StrCat(kSize), "timeout_ms=60000",
          absl::StrCat(GetParam().name, "=", Socket(rank))});
    }
    for (int rank = 0; rank < kSize; ++rank) EXPECT_THAT(Line(rank), StartsWith("joined"));
  }
  void TearDown() override {
    for (auto& worker : workers_) worker.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Socket(int rank) const { return absl::StrCat("unix:", folder_, "/worker-", rank); }
  std::string Line(int rank) const {
    const absl::StatusOr<std::string> line = clients_[rank]->ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << line.status() << "\n" << clients_[rank]->ErrorText();
    return line.value_or("nothing");
  }
  // The port that the worker has logged.
  int MetricsPort(int rank) const {
    // It serves before it has logged the port.
    EXPECT_TRUE(testing::Eventually([&] {
      return absl::StrContains(workers_[rank]->ErrorText(), "metrics_port=");
    }));
    const std::vector<std::string> parts =
        absl::StrSplit(workers_[rank]->ErrorText(), absl::MaxSplits("metrics_port=", 1));
    int port = 0;
    if (parts.size() == 2) {
      const std::vector<std::string> words = absl::StrSplit(parts[1], absl::ByAnyChar(" \n"));
      EXPECT_TRUE(absl::SimpleAtoi(words[0], &port)) << words[0];
    }
    return port;
  }
  static std::string Series(int rank, int waits_for) {
    return absl::StrCat("cohort_worker_wait_seconds_total{tenant=\"\",group=\"group\",rank=\"",
                        rank, "\",waits_for=\"", waits_for, "\"} ");
  }

  // A socket's path has room for little more than a hundred bytes.
  std::string folder_ = "/tmp/cohort-XXXXXX";
  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::unique_ptr<ChildProcess> workers_[kSize];
  std::unique_ptr<ChildProcess> clients_[kSize];
};

TEST_P(LateRankTest, IsNamedByTheWaitingRanks) {
  if (HasFailure()) return;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != kLate) clients_[rank]->WriteLine("once all_reduce 8 plain");
  }
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == kLate) continue;
    const int port = MetricsPort(rank);
    ASSERT_NE(port, 0);
    EXPECT_TRUE(testing::Eventually([&] {
      return absl::StrContains(Scrape(port), Series(rank, kLate));
    })) << Scrape(port);
    // The other rank has long arrived, and is charged a moment at most: the late rank comes first.
    const auto worker = client::WorkerClient::Create(Socket(rank), kTimeout);
    const absl::StatusOr<client::WorkerInfo> info = worker->Describe();
    ASSERT_TRUE(info.ok()) << info.status();
    ASSERT_EQ(info->ranks.size(), 1u);
    ASSERT_FALSE(info->ranks[0].waits.empty());
    EXPECT_EQ(info->ranks[0].waits[0].rank, kLate);
    EXPECT_GT(info->ranks[0].waits[0].time, absl::ZeroDuration());
  }
  clients_[kLate]->WriteLine("once all_reduce 8 plain");
  for (int rank = 0; rank < kSize; ++rank) EXPECT_THAT(Line(rank), StartsWith("OK"));
  // The series end when the ranks leave.
  const int port = MetricsPort(1);
  for (int rank = 0; rank < kSize; ++rank) clients_[rank]->WriteLine("leave");
  EXPECT_TRUE(testing::Eventually(
      [&] { return !absl::StrContains(Scrape(port), "cohort_worker_wait_seconds_total{"); }));
}

// The worker serves its metrics, and has no client.
TEST_P(LateRankTest, AWorkerEndsAtOnce) {
  if (HasFailure()) return;
  for (int rank = 0; rank < kSize; ++rank) {
    clients_[rank]->Kill();
    EXPECT_FALSE(Scrape(MetricsPort(rank)).empty());
    const Instant asked = Clock::Steady().Now();
    workers_[rank]->Signal(SIGTERM);
    const absl::StatusOr<int> exit = workers_[rank]->Wait(kTimeout);
    ASSERT_TRUE(exit.ok()) << exit.status();
    EXPECT_EQ(*exit, 0);
    const absl::Duration took = Clock::Steady().Now() - asked;
    EXPECT_LT(took, absl::Seconds(1));
    std::cout << "SIGTERM of a worker to its end: " << took << std::endl;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, LateRankTest,
                         ::testing::Values(Form{"attached"}, Form{"attached", true}, Form{"remote"},
                                           Form{"remote", true}),
                         [](const ::testing::TestParamInfo<Form>& info) {
                           return info.param.name + (info.param.sockets ? "BySockets" : "ByMemory");
                         });

}  // namespace
}  // namespace cohort
