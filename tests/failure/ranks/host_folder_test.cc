// Ranks as in containers of one machine, each with network and process ids of its own: they share
// memory through a folder.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/collective/trace/path_report.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/host_network.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::HostNetwork;
using testing::kTimeout;
using ::testing::Not;
using testing::ProgramPath;
using ::testing::StartsWith;

using Environment = std::map<std::string, std::string>;

constexpr char kVariable[] = "COHORT_HOST_FOLDER";
constexpr int kCoordinatorHost = 3;
// Ranks have leases of 30 s, so only a closed connection tells of a death before.
constexpr absl::Duration kAtOnce = absl::Seconds(10);

class HostFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<HostNetwork>> network = HostNetwork::Create(4);
    if (!network.ok()) GTEST_SKIP() << network.status();
    network_ = *std::move(network);
    char path[] = "/tmp/host-folder-XXXXXX";  // a socket's path is short
    ASSERT_NE(mkdtemp(path), nullptr);
    base_ = path;
    folder_ = absl::StrCat(base_, "/folder");
    ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
    coordinator_socket_ = absl::StrCat("unix:", base_, "/coordinator");
    coordinator_ = std::make_unique<ChildProcess>(network_->On(
        kCoordinatorHost,
        {"coordinator/cohort-coordinator", "--listen", "0.0.0.0:7700", "--listen",
         coordinator_socket_, "--insecure", "--metrics-listen", "", "--log-level", "warning"}));
  }
  void TearDown() override {
    ranks_.clear();
    coordinator_.reset();
    if (!base_.empty()) std::filesystem::remove_all(base_);
  }

  // A process on a host, in a process namespace of its own.
  std::unique_ptr<ChildProcess> StartContained(int host, std::vector<std::string> command,
                                               const Environment& environment) {
    command[0] = ProgramPath(command[0]);
    command.insert(command.begin(), {"/usr/bin/unshare", "--pid", "--fork", "--kill-child"});
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    auto process = std::make_unique<ChildProcess>(network_->On(host, std::move(command)));
    for (const auto& [name, value] : environment) unsetenv(name.c_str());
    return process;
  }

  // Rank i runs on host i.
  void StartRank(int size, const std::string& folder, const std::string& coordinator,
                 std::vector<std::string> more = {"timeout_ms=30000"}) {
    const int rank = static_cast<int>(ranks_.size());
    std::vector<std::string> command = {"tests/failure/testing/rank_main", coordinator, "group",
                                        absl::StrCat(rank), absl::StrCat(size)};
    command.insert(command.end(), more.begin(), more.end());
    const Environment environment = {{kVariable, folder}};
    ranks_.push_back(StartContained(rank, std::move(command), environment));
  }

  std::string Line(size_t rank) {
    const absl::StatusOr<std::string> line = ranks_[rank]->ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << "rank " << rank << ": " << line.status() << "\n"
                           << ranks_[rank]->ErrorText();
    return line.value_or("nothing");
  }
  void ExpectJoined(const std::string& path) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      EXPECT_THAT(Line(rank), AllOf(StartsWith("joined "), HasSubstr(path)));
    }
  }
  void VerifyAll() {
    for (const char* const what :
         {"all_reduce 8 plain", "all_reduce 300000 registered", "exchange 300000 plain"}) {
      for (const auto& rank : ranks_) rank->WriteLine(absl::StrCat("once ", what));
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        EXPECT_THAT(Line(rank), StartsWith("OK")) << what;
      }
    }
  }

  // The reasons that `cohort group show` prints.
  std::string WhyNotShared() {
    const std::unique_ptr<client::StoreClient> store =
        client::StoreClient::Create(testing::Connect(coordinator_socket_), "group");
    std::string reasons;
    // Rank 0 writes the note while it joins; the others do not wait for it.
    testing::Eventually([&] {
      const auto kept = store->Get({std::string(client::kPathReportKey)});
      if (!kept.ok() || kept->values.empty()) return false;
      const auto note = client::DecodePathReport(kept->values[0].value);
      reasons = note.has_value() ? absl::StrJoin(note->why_not, "; ") : "no note";
      return true;
    });
    return reasons;
  }

  static std::string Coordinator() {
    return absl::StrCat(HostNetwork::Address(kCoordinatorHost), ":7700");
  }
  int FilesInFolder() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_),
                                          std::filesystem::directory_iterator()));
  }

  std::unique_ptr<HostNetwork> network_;
  std::string base_;
  std::string folder_;
  std::string coordinator_socket_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

TEST_F(HostFolderTest, RanksShareMemoryAcrossNetworkNamespaces) {
  for (int rank = 0; rank < 3; ++rank) StartRank(3, folder_, Coordinator());
  ExpectJoined("shared memory");
  VerifyAll();
  EXPECT_EQ(WhyNotShared(), "");
  EXPECT_EQ(FilesInFolder(), 0);
  for (const auto& rank : ranks_) rank->WriteLine("rejoin");
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_THAT(Line(rank), StartsWith("OK"));
  VerifyAll();
  EXPECT_EQ(FilesInFolder(), 0);
}

// The coordinator is reached by a file, too, so that no rank needs a network.
TEST_F(HostFolderTest, RanksThatShareMemoryNeedNoAddress) {
  for (int rank = 0; rank < 2; ++rank) StartRank(2, folder_, coordinator_socket_);
  ExpectJoined("shared memory");
  VerifyAll();
}

TEST_F(HostFolderTest, WithoutAFolderTheReasonSaysHowToShareMemory) {
  for (int rank = 0; rank < 2; ++rank) StartRank(2, "", Coordinator());
  ExpectJoined("tcp 10.77.");
  VerifyAll();
  EXPECT_THAT(WhyNotShared(), AllOf(StartsWith("ranks 0-1 "), HasSubstr("one machine"),
                                    HasSubstr("COHORT_HOST_FOLDER"), Not(HasSubstr(";"))));
}

TEST_F(HostFolderTest, RanksWithDifferentFoldersUseSockets) {
  StartRank(3, folder_, Coordinator());
  StartRank(3, base_, Coordinator());
  StartRank(3, folder_, Coordinator());
  EXPECT_THAT(Line(0), HasSubstr("tcp "));
  EXPECT_THAT(Line(1), HasSubstr("tcp "));
  EXPECT_THAT(Line(2), HasSubstr("shared memory"));
  VerifyAll();
}

TEST_F(HostFolderTest, AWrongFolderIsAnErrorOfAllRanksThatNamesTheRank) {
  const std::pair<std::string, std::string> wrong[] = {
      {absl::StrCat(base_, "/none"), ": No such file or directory"},
      {"/proc/self/fd", ": making a socket in it: "}};
  for (const auto& [folder, why] : wrong) {
    ranks_.clear();
    StartRank(2, folder_, Coordinator());
    StartRank(2, folder, Coordinator());
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(Line(rank),
                  AllOf(StartsWith("failed FAILED_PRECONDITION group group: rank 1 ("),
                        HasSubstr(absl::StrCat(kVariable, " is \"", folder, "\"", why))));
    }
  }
}

TEST_F(HostFolderTest, TheDeathOfARankIsNoticedAtOnceAndNamed) {
  for (int rank = 0; rank < 3; ++rank) StartRank(3, folder_, Coordinator());
  ExpectJoined("shared memory");
  for (const auto& rank : ranks_) rank->WriteLine("loop all_reduce 65536 registered");
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "running");
  const Instant killed = Clock::Steady().Now();
  ranks_[1]->Kill();
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(Line(rank), AllOf(StartsWith("ABORTED"), HasSubstr("rank 1 is gone")));
  }
  const absl::Duration noticed = Clock::Steady().Now() - killed;
  std::cout << "noticed after " << noticed << std::endl;
  EXPECT_LT(noticed, kAtOnce);
}

// A client is attached to a worker in another network namespace.
class WorkerInFolderTest : public HostFolderTest {
 protected:
  void StartWorker(int host, const std::vector<std::string>& more) {
    const std::string address = absl::StrCat(HostNetwork::Address(host), ":7800");
    std::vector<std::string> command = {"worker/daemon/cohort-worker",
                                        "--listen",
                                        address,
                                        "--insecure",
                                        "--coordinator",
                                        Coordinator(),
                                        "--metrics-listen",
                                        "",
                                        "--log-level",
                                        "warning"};
    command.insert(command.end(), more.begin(), more.end());
    worker_ = StartContained(host, std::move(command), {});
    worker_address_ = address;
  }
  void StartAttached(const std::string& folder) {
    StartRank(2, folder, Coordinator(), {"timeout_ms=30000", "attached=" + worker_address_});
  }
  void TearDown() override {
    worker_.reset();
    HostFolderTest::TearDown();
  }

  std::unique_ptr<ChildProcess> worker_;
  std::string worker_address_;
};

TEST_F(WorkerInFolderTest, AClientIsAttachedThroughTheFolder) {
  StartWorker(2, {"--host-folder", folder_});
  for (int rank = 0; rank < 2; ++rank) StartAttached(folder_);
  ExpectJoined("shared memory");
  VerifyAll();
}

TEST_F(WorkerInFolderTest, WithoutAFolderTheErrorSaysWhichSideHasNone) {
  StartWorker(2, {"--host-folder", folder_});
  StartAttached("");
  EXPECT_THAT(Line(0), AllOf(StartsWith("failed FAILED_PRECONDITION the worker at 10.77.0.3:7800"),
                             HasSubstr("shares no memory with this process: connecting: Connection "
                                       "refused. A worker on this machine"),
                             HasSubstr("COHORT_HOST_FOLDER"),
                             EndsWith("the worker has one, this process none")));
}

TEST_F(WorkerInFolderTest, AWorkerWithAWrongFolderDoesNotStart) {
  StartWorker(2, {"--host-folder", "/none"});
  const absl::StatusOr<int> exit = worker_->Wait(kTimeout);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(*exit, 1);
  EXPECT_THAT(worker_->ErrorText(),
              AllOf(HasSubstr("host_folder is"), HasSubstr("/none"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace cohort
