// The NCCL of this machine, as far as it goes without a GPU: an id is made, and travels to another
// member through a coordinator; making a communicator fails, and says why.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/rendezvous/process_group/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"
#include "worker/communicator/nccl/api/loaded_nccl_api.h"
#include "worker/communicator/nccl/api/nccl_error.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr char kName[] = "nccl";

// Both standard outputs of this process and of those that it starts, into a file while it lives.
class Capture {
 public:
  Capture() : path_(absl::StrCat(cohort::testing::NewFolder(), "/output")) {
    std::fflush(nullptr);
    const int file = open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    output_ = dup(STDOUT_FILENO);
    error_ = dup(STDERR_FILENO);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~Capture() {
    std::fflush(nullptr);
    dup2(output_, STDOUT_FILENO);
    dup2(error_, STDERR_FILENO);
    close(output_);
    close(error_);
  }
  std::string Text() const {
    std::fflush(nullptr);
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  const std::string path_;
  int output_ = -1;
  int error_ = -1;
};

class RealNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The one interface that every machine has. Before the first call: NCCL looks once.
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    auto nccl = LoadNccl();
    if (absl::IsNotFound(nccl.status())) GTEST_SKIP() << nccl.status();
    ASSERT_TRUE(nccl.ok()) << nccl.status();
    nccl_ = *std::move(nccl);
  }

  std::shared_ptr<NcclApi> nccl_;
};

TEST_F(RealNcclTest, AnIdTravelsThroughACoordinatorAndIntoNoLog) {
  ncclUniqueId id;
  std::string fetched;
  std::string log;
  {
    Capture capture;
    cohort::testing::CoordinatorProcess::Options process;
    process.flags = {"--log-level", "debug"};
    cohort::testing::CoordinatorProcess coordinator(process);
    const absl::Status started = coordinator.Start();
    ASSERT_TRUE(started.ok()) << started;
    const auto join = [&](int rank) {
      client::ProcessGroupOptions options;
      options.connection.address = coordinator.address();
      options.group = "g";
      options.rank = rank;
      options.world_size = 2;
      options.join_timeout = kLong;
      options.timeout = kLong;
      return client::ProcessGroup::Create(options);
    };
    using Phase = client::ProcessGroup::InitPhase;
    std::thread maker([&] {
      auto group = join(0);
      ASSERT_TRUE(group.ok()) << group.status();
      const absl::Status made = NcclError(*nccl_, nccl_->GetUniqueId(&id), "ncclGetUniqueId");
      ASSERT_TRUE(made.ok()) << made;
      const absl::Status published =
          (*group)->PublishUniqueIds(kName, {std::string(id.internal, sizeof(id.internal))});
      EXPECT_TRUE(published.ok()) << published;
      EXPECT_TRUE((*group)->Barrier().ok());
    });
    std::thread fetcher([&] {
      auto group = join(1);
      ASSERT_TRUE(group.ok()) << group.status();
      const auto ids = (*group)->FetchUniqueIds(kName, kLong);
      ASSERT_TRUE(ids.ok()) << ids.status();
      ASSERT_EQ(ids->size(), 1u);
      fetched = ids->front();
      EXPECT_TRUE((*group)->ReportInit(kName, Phase::kGotId, "").ok());
      EXPECT_TRUE((*group)->Barrier().ok());
    });
    maker.join();
    fetcher.join();
    const auto ended = coordinator.Terminate(kLong);
    EXPECT_TRUE(ended.ok()) << ended.status();
    log = capture.Text();
  }
  const std::string made(id.internal, sizeof(id.internal));
  EXPECT_EQ(fetched, made);
  // The random part of an id is at its beginning.
  const std::string secret = made.substr(0, 8);
  ASSERT_NE(secret, std::string(8, '\0'));
  EXPECT_THAT(log, Not(IsEmpty()));
  for (const std::string& form : {secret, absl::BytesToHexString(secret), absl::CHexEscape(secret),
                                  absl::CEscape(secret), absl::Base64Escape(secret.substr(0, 6))}) {
    EXPECT_FALSE(absl::StrContains(log, form)) << "an id was logged";
  }
}

TEST_F(RealNcclTest, TwoIdsDiffer) {
  ncclUniqueId one;
  ncclUniqueId other;
  ASSERT_EQ(nccl_->GetUniqueId(&one), ncclSuccess);
  ASSERT_EQ(nccl_->GetUniqueId(&other), ncclSuccess);
  EXPECT_NE(std::string(one.internal, sizeof(one.internal)),
            std::string(other.internal, sizeof(other.internal)));
}

// Begins, polls and ends a communicator of one rank, which needs a device; prints how that went.
[[noreturn]] void InitAndPrint(NcclApi& nccl) {
  // Should NCCL hang.
  alarm(static_cast<unsigned>(absl::ToInt64Seconds(kLong)));
  ncclUniqueId id;
  ncclResult_t result = nccl.GetUniqueId(&id);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (result == ncclSuccess) result = nccl.CommInitRankConfig(&comm, 1, id, 0, &config);
  while (result == ncclInProgress) {
    if (nccl.CommGetAsyncError(comm, &result) != ncclSuccess) break;
    std::this_thread::yield();
  }
  const absl::Status status = NcclError(nccl, result, "ncclCommInitRankConfig");
  const std::string text = status.ToString();
  std::fprintf(stderr, "ended with %s\n", text.c_str());
  const std::string secret(id.internal, 8);
  const bool shows_id = absl::StrContains(text, secret) ||
                        absl::StrContains(text, absl::BytesToHexString(secret)) ||
                        absl::StrContains(text, absl::CHexEscape(secret));
  _exit(shows_id ? 1 : 0);
}

// In a process of its own, since NCCL may not be itself after that.
TEST_F(RealNcclTest, InitWithoutADeviceSaysWhy) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "there is a GPU";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(InitAndPrint(*nccl_), ::testing::ExitedWithCode(0),
              "ended with INTERNAL: ncclCommInitRankConfig failed with ncclUnhandledCudaError: a "
              "call to CUDA failed inside NCCL.*NCCL last said: ");
}

}  // namespace
}  // namespace cohort::worker
