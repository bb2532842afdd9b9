// NCCL's ids through a real coordinator, over the fake NCCL and the fake CUDA runtime.
#include "worker/group/bootstrap/nccl_bootstrap.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/ras/testing/ras_server.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr absl::Duration kLong = absl::Seconds(60);

using Formed = absl::StatusOr<std::unique_ptr<NcclCommunicator>>;

class NcclBootstrapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::FakeMachine machine;
    machine.devices = kRanks;
    cuda::ResetFakeRuntime(machine);
    nccl_ = std::make_shared<FakeNcclApi>();
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
    groups_.resize(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        client::ProcessGroupOptions options;
        options.connection.address = coordinator_.address();
        options.group = "devices";
        options.rank = rank;
        options.world_size = kRanks;
        auto group = client::ProcessGroup::Create(options);
        ASSERT_TRUE(group.ok()) << group.status();
        groups_[static_cast<size_t>(rank)] = *std::move(group);
      });
    }
    for (std::thread& thread : threads) thread.join();
    space_.emplace(*HostSharedMemory::Create(kRanks));
  }

  std::vector<Formed> Form(absl::Duration timeout, int absent = -1) {
    std::vector<Formed> formed;
    for (int rank = 0; rank < kRanks; ++rank) formed.emplace_back(absl::UnknownError("absent"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == absent) continue;
      threads.emplace_back([&, rank] {
        NcclBootstrapOptions options;
        options.nccl = nccl_;
        options.device = rank;
        options.timeout = timeout;
        std::unique_ptr<Communicator>& host = hosts_[static_cast<size_t>(rank)];
        host = std::make_unique<HostCommunicator>(
            HostMemory{*HostSharedMemory::Attach(dup(space_->fd()), kRanks), RankHeaps(kRanks)},
            rank);
        MemberUniqueIds ids(groups_[static_cast<size_t>(rank)].get());
        formed[static_cast<size_t>(rank)] = BootstrapNccl(ids, host.get(), options);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return formed;
  }
  std::unique_ptr<client::AdminClient> Admin() {
    client::ConnectionOptions options;
    options.address = coordinator_.address();
    return client::AdminClient::Create(*client::Connection::Create(options));
  }

  cohort::testing::CoordinatorProcess coordinator_{{}};
  std::shared_ptr<FakeNcclApi> nccl_;
  std::vector<std::unique_ptr<client::ProcessGroup>> groups_;
  std::optional<HostSharedMemory> space_;
  std::vector<std::unique_ptr<Communicator>> hosts_{kRanks};
};

TEST_F(NcclBootstrapTest, RanksConnectAndCompute) {
  std::vector<Formed> formed = Form(kLong);
  std::vector<std::thread> threads;
  for (Formed& rank : formed) {
    ASSERT_TRUE(rank.ok()) << rank.status();
    threads.emplace_back([&] {
      float number = static_cast<float>((*rank)->rank());
      const absl::Status status = (*rank)->AllReduce(
          &number, &number, 1, DataType::kF32, {ReduceOp::kSum}, Clock::Steady().Now() + kLong);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(number, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto report = Admin()->WhoIsMissing("devices");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->inits.empty()) << "no rank is stuck";
}

TEST_F(NcclBootstrapTest, ARankThatIsStuckInInitIsKnownMeanwhile) {
  nccl_->HoldInit(true);
  std::thread forms([&] {
    for (const Formed& rank : Form(kLong)) EXPECT_TRUE(rank.ok()) << rank.status();
  });
  const auto admin = Admin();
  const Instant deadline = Clock::Steady().Now() + kLong;
  while (true) {
    const auto report = admin->WhoIsMissing("devices");
    ASSERT_TRUE(report.ok()) << report.status();
    size_t calling = 0;
    for (const auto& init : report->inits) {
      for (const auto& rank : init.ranks) {
        if (rank.phase == "calling_init" && rank.detail.find("NCCL 22809") != std::string::npos) {
          ++calling;
        }
      }
    }
    if (calling == kRanks) break;
    ASSERT_LT(Clock::Steady().Now(), deadline);
  }
  nccl_->HoldInit(false);
  forms.join();
}

TEST_F(NcclBootstrapTest, WithoutTheRankThatMakesTheIdItIsNamed) {
  const std::vector<Formed> formed = Form(absl::Milliseconds(300), 0);
  for (const int rank : {1, 2}) {
    const absl::Status& status = formed[static_cast<size_t>(rank)].status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("nccl"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("0"));
  }
}

TEST_F(NcclBootstrapTest, TheErrorOfAHangHasTheReportOfNccl) {
  RasServer ras(
      [](RasServer& server) {
        server.Behave(3);
        server.Line();
        server.Say(RasSample());
      },
      kRanks);
  ASSERT_EQ(setenv("NCCL_RAS_ADDR", ras.address().c_str(), 1), 0);
  nccl_->HoldInit(true);
  // The first rank that gives up tells the others, which may learn it before their own deadline.
  int late = 0;
  for (const Formed& rank : Form(absl::Milliseconds(300))) {
    if (absl::IsAborted(rank.status())) continue;
    ++late;
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kDeadlineExceeded) << rank.status();
    EXPECT_THAT(std::string(rank.status().message()),
                HasSubstr("NCCL on this host says: rank 2 (process 77 on 10.0.0.9, device 1) is "
                          "dead"));
  }
  EXPECT_GT(late, 0);
  unsetenv("NCCL_RAS_ADDR");
  nccl_->HoldInit(false);
}

TEST_F(NcclBootstrapTest, ARankWhoseDeviceFailsEndsItForAll) {
  nccl_->FailNext("ncclCommInitRankConfig", ncclUnhandledCudaError, 2);
  const std::vector<Formed> formed = Form(kLong);
  EXPECT_EQ(formed[2].status().code(), absl::StatusCode::kInternal) << formed[2].status();
  for (const int rank : {0, 1}) {
    const absl::Status& status = formed[static_cast<size_t>(rank)].status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 could not form NCCL's group"));
  }
  const auto report = Admin()->WhoIsMissing("devices");
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->inits.size(), 1u);
  bool told = false;
  for (const auto& rank : report->inits[0].ranks) {
    told = told || (rank.rank == 2 && rank.phase == "failed" &&
                    rank.detail.find("ncclUnhandledCudaError") != std::string::npos);
  }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace cohort::worker
