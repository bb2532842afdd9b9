// Failures on devices, which all ranks learn in time.
#include "worker/communicator/nccl/nccl_communicator.h"

#include <functional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/testing/nccl_ranks.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 3;

Instant In(absl::Duration time) { return Clock::Steady().Now() + time; }
Instant Soon() { return In(absl::Seconds(60)); }

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  NcclCommunicatorTest() {
    cuda::FakeMachine machine;
    machine.devices = kRanks;
    cuda::ResetFakeRuntime(machine);
    nccl_ = std::make_shared<FakeNcclApi>();
  }
  ~NcclCommunicatorTest() override {
    ranks_.clear();
    nccl_->Release();
    EXPECT_THAT(nccl_->misuses(), IsEmpty());
  }

  void Form() {
    ranks_ = FormNcclRanks(nccl_, kRanks, Soon());
    for (const NcclRank& rank : ranks_) ASSERT_TRUE(rank.nccl.ok()) << rank.nccl.status();
  }
  std::vector<absl::Status> Run(const std::function<absl::Status(NcclCommunicator&)>& body) {
    std::vector<absl::Status> statuses(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].nccl.ok()) continue;
      threads.emplace_back([&, rank] { statuses[rank] = body(**ranks_[rank].nccl); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  static absl::Status Sum(NcclCommunicator& group, Instant deadline = Soon()) {
    float number = 1;
    const absl::Status status =
        group.AllReduce(&number, &number, 1, DataType::kF32, {ReduceOp::kSum}, deadline);
    return !status.ok() || number == kRanks ? status : absl::InternalError("a wrong sum");
  }
  void ExpectWorks() {
    for (const absl::Status& status : Run([](auto& group) { return Sum(group); })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // That all later calls end at once, with that.
  void ExpectEnded(const std::string& cause) {
    const Instant begin = Clock::Steady().Now();
    for (const absl::Status& status : Run([](auto& group) { return Sum(group); })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(cause));
    }
    EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(10));
  }

  std::shared_ptr<FakeNcclApi> nccl_;
  NcclRanks ranks_;
};

TEST_F(NcclCommunicatorTest, AnErrorOnOneDeviceEndsAllAndNamesTheRank) {
  Form();
  ExpectWorks();
  nccl_->HangNext();
  std::thread injects([&] {
    // Once all have come.
    while (nccl_->functions().size() < 3) std::this_thread::yield();
    nccl_->InjectAsyncError(1, ncclRemoteError);
  });
  const std::vector<absl::Status> statuses = Run([](auto& group) { return Sum(group); });
  injects.join();
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kAborted) << statuses[rank];
  }
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("ncclRemoteError"));
  ExpectEnded("ncclRemoteError");
}

// NCCL sees the closed connection of a process that died before the host says whose it was.
TEST_F(NcclCommunicatorTest, ALostRankIsNamedThoughNcclFailedFirst) {
  Form();
  ExpectWorks();
  nccl_->HangNext();
  std::thread kills([&] {
    while (nccl_->functions().size() < 3) std::this_thread::yield();
    nccl_->InjectAsyncError(1, ncclRemoteError);
    // Whether rank 1 has seen that by now or not.
    (*ranks_[0].nccl)->Abort("rank 2 is gone");
  });
  const std::vector<absl::Status> statuses = Run([](auto& group) { return Sum(group); });
  kills.join();
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(status.message(), "rank 2 is gone");
  }
}

TEST_F(NcclCommunicatorTest, AHangOnDevicesEndsByTheDeadline) {
  Form();
  nccl_->HangNext();
  const std::vector<absl::Status> statuses = Run([](auto& group) {
    return Sum(group, In(group.rank() == 2 ? absl::Milliseconds(100) : absl::Seconds(60)));
  });
  EXPECT_EQ(statuses[2].code(), absl::StatusCode::kDeadlineExceeded) << statuses[2];
  EXPECT_THAT(std::string(statuses[2].message()), HasSubstr("the devices do not finish"));
  for (const int rank : {0, 1}) {
    const absl::Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 gave up: all_reduce of 1 f32"));
  }
  ExpectEnded("rank 2 gave up");
}

TEST_F(NcclCommunicatorTest, AbortEndsWhatHangsOnDevices) {
  Form();
  nccl_->HangNext();
  std::thread aborts([&] {
    while (nccl_->functions(0).back() != "ncclCommGetAsyncError") std::this_thread::yield();
    (*ranks_[0].nccl)->Abort("rank 1 is gone");
  });
  for (const absl::Status& status : Run([](auto& group) { return Sum(group); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(status.message(), "rank 1 is gone");
  }
  aborts.join();
  ExpectEnded("rank 1 is gone");
}

TEST_F(NcclCommunicatorTest, ACallThatFailsEndsAll) {
  Form();
  nccl_->FailNext("ncclAllReduce", ncclSystemError, 1);
  const std::vector<absl::Status> statuses = Run([](auto& group) { return Sum(group); });
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kUnavailable) << statuses[1];
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("ncclAllReduce"));
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 gave up"));
}

TEST_F(NcclCommunicatorTest, AnAbortThatBlocksDoesNotDelayTheCaller) {
  Form();
  nccl_->HangNext();
  nccl_->BlockNext("ncclCommRevoke", absl::Seconds(30), 0);
  nccl_->BlockNext("ncclCommAbort", absl::Seconds(30), 0);
  const Instant begin = Clock::Steady().Now();
  Run([](auto& group) { return Sum(group, In(absl::Milliseconds(50))); });
  ranks_[0].nccl = absl::UnknownError("destroyed");
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(20));
  nccl_->Release();
}

TEST_F(NcclCommunicatorTest, FormingEndsByTheDeadlineWhenARankDoesNotCome) {
  ranks_ = FormNcclRanks(nccl_, kRanks, In(absl::Milliseconds(300)), {{1}});
  for (const int rank : {0, 2}) {
    const absl::Status& status = ranks_[static_cast<size_t>(rank)].nccl.status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.code(),
                ::testing::AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kAborted));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ncclCommInitRankConfig"));
  }
}

TEST_F(NcclCommunicatorTest, FormingThatFailsOnOneRankEndsIt) {
  nccl_->FailNext("ncclCommInitRankConfig", ncclUnhandledCudaError, 1);
  ranks_ = FormNcclRanks(nccl_, kRanks, Soon());
  EXPECT_EQ(ranks_[1].nccl.status().code(), absl::StatusCode::kInternal) << ranks_[1].nccl.status();
  for (const int rank : {0, 2}) {
    const absl::Status& status = ranks_[static_cast<size_t>(rank)].nccl.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 could not form NCCL's group"));
  }
}

// NCCL connects in its first operation, and takes no other call meanwhile.
TEST_F(NcclCommunicatorTest, AScaledSumMayBeTheFirstOperation) {
  Form();
  for (const absl::Status& status : Run([](auto& group) {
         float number = 2;
         const absl::Status done = group.AllReduce(&number, &number, 1, DataType::kF32,
                                                   {ReduceOp::kPreMulSum, 0.5}, Soon());
         return !done.ok() || number == kRanks ? done : absl::InternalError("a wrong sum");
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(NcclCommunicatorTest, InvalidIdsAreRefused) {
  const NcclCliqueOptions nothing;
  EXPECT_EQ(
      NcclClique::Form(nccl_, nothing, Soon(), [] { return absl::OkStatus(); }).status().code(),
      absl::StatusCode::kInvalidArgument);
  NcclCliqueOptions shorter;
  shorter.ids = {"too short"};
  const absl::Status status =
      NcclClique::Form(nccl_, shorter, Soon(), [] { return absl::OkStatus(); }).status();
  EXPECT_EQ(status.message(), "a unique id of 9 bytes; NCCL's have 128");
}

TEST_F(NcclCommunicatorTest, LargeGroupsStartFromSeveralRoots) {
  EXPECT_EQ(NcclRoots(1), 1);
  EXPECT_EQ(NcclRoots(128), 1);
  EXPECT_EQ(NcclRoots(129), 2);
  EXPECT_EQ(NcclRoots(1024), 8);
  EXPECT_EQ(RankOfNcclRoot(7), 896);
}

// Two groups on the same devices, called from two threads of each rank: NCCL is called by one at a
// time, which the fake would tell.
TEST_F(NcclCommunicatorTest, GroupsOfADeviceTakeTickets) {
  Form();
  NcclRanks others = FormNcclRanks(nccl_, kRanks, Soon());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (NcclRanks* const group : {&ranks_, &others}) {
      threads.emplace_back([&, group, rank] {
        for (int i = 0; i < 50; ++i) {
          const absl::Status status = Sum(**(*group)[static_cast<size_t>(rank)].nccl);
          ASSERT_TRUE(status.ok()) << status;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cohort::worker
