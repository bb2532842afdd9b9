// How communicators of the fake NCCL begin and end, and the faults that tests request.
#include "absl/synchronization/notification.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_test_base.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FakeNcclApiTest : public FakeNcclTest {
 protected:
  ncclResult_t StateOf(const Rank& rank) {
    ncclResult_t state = ncclNumResults;
    EXPECT_EQ(nccl_->CommGetAsyncError(rank.comm, &state), ncclSuccess);
    return state;
  }
  // Each rank has an all-reduce on its stream that does not end.
  void Hang() {
    data_.assign(ranks_.size(), 0);
    nccl_->HangNext();
    OnRanks([&](Rank& rank) {
      int32_t& mine = data_[static_cast<size_t>(rank.rank)];
      ASSERT_EQ(Await(rank.comm, AllReduce(rank, &mine)), ncclSuccess);
    });
    for (Rank& rank : ranks_) ASSERT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
  }

  std::vector<int32_t> data_;
};

TEST_F(FakeNcclApiTest, InitIsInProgressUntilAllHaveCome) {
  MakeRanks(2);
  EXPECT_EQ(Init(ranks_[0], false), ncclInProgress);
  EXPECT_EQ(StateOf(ranks_[0]), ncclInProgress);
  int32_t value = 0;
  EXPECT_EQ(AllReduce(ranks_[0], &value), ncclInvalidArgument);
  EXPECT_EQ(nccl_->CommAbort(ranks_[0].comm), ncclSuccess);

  ASSERT_EQ(nccl_->GetUniqueId(&id_), ncclSuccess);
  OnRanks([&](Rank& rank) { EXPECT_EQ(Await(rank.comm, Init(rank, false)), ncclSuccess); });
  DestroyAll();
  EXPECT_THAT(nccl_->leaks(), IsEmpty());
}

TEST_F(FakeNcclApiTest, BlockingInitBlocks) {
  Form(3, true);
  OnRanks([&](Rank& rank) { EXPECT_EQ(StateOf(rank), ncclSuccess); });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclApiTest, InitThatIsHeldEndsByAbort) {
  MakeRanks(2);
  nccl_->HoldInit(true);
  OnRanks([&](Rank& rank) { EXPECT_EQ(Init(rank, false), ncclInProgress); });
  OnRanks([&](Rank& rank) {
    EXPECT_EQ(StateOf(rank), ncclInProgress);
    EXPECT_EQ(nccl_->CommAbort(rank.comm), ncclSuccess);
  });
  ExpectClean();
}

TEST_F(FakeNcclApiTest, AnIdIsForOneCommunicator) {
  Form(2, true);
  ncclComm_t again = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  EXPECT_EQ(nccl_->CommInitRankConfig(&again, 2, id_, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(nccl_->CommGetAsyncError(again, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_THAT(nccl_->misuses(), SizeIs(1));
  // No process made this id, so no process listens.
  ncclUniqueId unknown{};
  EXPECT_EQ(nccl_->CommInitRankConfig(&again, 2, unknown, 0, &config), ncclSystemError);
  EXPECT_EQ(again, nullptr);
  EXPECT_EQ(nccl_->CommInitRankConfig(&again, 2, id_, 2, &config), ncclInvalidArgument);
  config.magic = 1;
  EXPECT_EQ(nccl_->CommInitRankConfig(&again, 2, id_, 0, &config), ncclInvalidArgument);
}

TEST_F(FakeNcclApiTest, SeveralIdsMakeOneCommunicator) {
  MakeRanks(3);
  ncclUniqueId ids[2] = {id_, id_};
  ASSERT_EQ(nccl_->GetUniqueId(&ids[1]), ncclSuccess);
  OnRanks([&](Rank& rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    EXPECT_EQ(nccl_->CommInitRankScalable(&rank.comm, 3, rank.rank, 2, ids, &config), ncclSuccess);
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclApiTest, TwoRanksDoNotShareADevice) {
  MakeRanks(2);
  // Both on the device of this thread.
  for (Rank& rank : ranks_) EXPECT_EQ(Init(rank, false), ncclInProgress);
  for (Rank& rank : ranks_) {
    EXPECT_EQ(StateOf(rank), ncclInvalidUsage);
    EXPECT_EQ(nccl_->CommAbort(rank.comm), ncclSuccess);
  }
  EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr("Duplicate GPU"));
  ExpectClean();
}

TEST_F(FakeNcclApiTest, AbortEndsWhatHangs) {
  Form(2);
  Hang();
  OnRanks([&](Rank& rank) {
    EXPECT_EQ(nccl_->CommAbort(rank.comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  });
  ExpectClean();
  // It is gone.
  EXPECT_EQ(nccl_->CommAbort(ranks_[0].comm), ncclInvalidArgument);
  EXPECT_THAT(nccl_->misuses(), ElementsAre(HasSubstr("gone")));
}

TEST_F(FakeNcclApiTest, AbortOfOneRankLeavesTheOthersHanging) {
  Form(2);
  Hang();
  EXPECT_EQ(nccl_->CommAbort(ranks_[0].comm), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(ranks_[1].stream), cudaErrorNotReady);
}

TEST_F(FakeNcclApiTest, RevokeEndsWhatHangsAndRefusesWhatComes) {
  Form(2);
  Hang();
  OnRanks([&](Rank& rank) {
    EXPECT_EQ(nccl_->CommRevoke(rank.comm, 1), ncclInvalidArgument);
    EXPECT_EQ(Await(rank.comm, nccl_->CommRevoke(rank.comm, NCCL_REVOKE_DEFAULT)), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    int32_t value = 0;
    EXPECT_EQ(AllReduce(rank, &value), ncclInvalidUsage);
    EXPECT_EQ(nccl_->CommRevoke(rank.comm, NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
    EXPECT_EQ(nccl_->CommFinalize(rank.comm), ncclInvalidUsage);
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclApiTest, RevokeInProgressIsDoneWhenNothingRuns) {
  Form(2, true);
  Hang();
  EXPECT_EQ(nccl_->CommRevoke(ranks_[0].comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), cudaSuccess);
}

TEST_F(FakeNcclApiTest, FinalizeLetsWhatRunsEnd) {
  Form(2);
  std::vector<int32_t> data = {1, 2};
  OnRanks([&](Rank& rank) {
    int32_t& mine = data[static_cast<size_t>(rank.rank)];
    ASSERT_EQ(Await(rank.comm, AllReduce(rank, &mine)), ncclSuccess);
    EXPECT_EQ(Await(rank.comm, nccl_->CommFinalize(rank.comm)), ncclSuccess);
    EXPECT_EQ(mine, 3);
    EXPECT_EQ(nccl_->CommFinalize(rank.comm), ncclInvalidArgument);
    EXPECT_EQ(nccl_->CommDestroy(rank.comm), ncclSuccess);
  });
  ExpectClean();
}

TEST_F(FakeNcclApiTest, FailsAndBlocksOnRequest) {
  Form(2, true);
  std::vector<int32_t> data = {1, 2};
  nccl_->FailNext("ncclAllReduce", ncclRemoteError, 1);
  EXPECT_EQ(AllReduce(ranks_[1], &data[1]), ncclRemoteError);
  EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr("ncclAllReduce was told to fail"));
  // A group that fails to end is ended.
  nccl_->FailNext("ncclGroupEnd", ncclSystemError);
  EXPECT_EQ(nccl_->GroupStart(), ncclSuccess);
  EXPECT_EQ(nccl_->GroupEnd(), ncclSystemError);

  nccl_->InjectAsyncError(0, ncclRemoteError);
  EXPECT_EQ(StateOf(ranks_[0]), ncclRemoteError);
  EXPECT_EQ(StateOf(ranks_[1]), ncclSuccess);
  EXPECT_EQ(AllReduce(ranks_[0], &data[0]), ncclRemoteError);

  const Instant before = Clock::Steady().Now();
  nccl_->BlockNext("ncclCommAbort", absl::Milliseconds(20), 0);
  EXPECT_EQ(nccl_->CommAbort(ranks_[0].comm), ncclSuccess);
  EXPECT_GE(Clock::Steady().Now() - before, absl::Milliseconds(20));
  EXPECT_EQ(nccl_->CommAbort(ranks_[1].comm), ncclSuccess);
  ExpectClean();
}

TEST_F(FakeNcclApiTest, FindsCallsOfOneDeviceAtTheSameTime) {
  Form(2, true);
  nccl_->BlockNext("ncclCommAbort", kLong, 0);
  std::thread aborting([&] { EXPECT_EQ(nccl_->CommAbort(ranks_[0].comm), ncclSuccess); });
  const auto aborts = [&] { return nccl_->functions(0).back() == "ncclCommAbort"; };
  ASSERT_TRUE(Eventually(aborts));
  // Calls for another device return, and so do calls without a device.
  EXPECT_EQ(StateOf(ranks_[1]), ncclSuccess);
  ncclUniqueId id;
  EXPECT_EQ(nccl_->GetUniqueId(&id), ncclSuccess);
  EXPECT_THAT(nccl_->misuses(), IsEmpty());
  StateOf(ranks_[0]);
  EXPECT_THAT(nccl_->misuses(),
              ElementsAre(AllOf(HasSubstr("ncclCommAbort and ncclCommGetAsyncError"),
                                HasSubstr("device 0"))));
  nccl_->Release();
  aborting.join();
}

TEST_F(FakeNcclApiTest, RecordsTheCallsOfEachRank) {
  Form(2);
  OnRanks([&](Rank& rank) {
    int32_t value = 1;
    Finish(rank, AllReduce(rank, &value));
    EXPECT_EQ(nccl_->GroupStart(), ncclSuccess);
    EXPECT_EQ(nccl_->GroupEnd(), ncclSuccess);
  });
  OnRanks([&](Rank& rank) { EXPECT_EQ(nccl_->CommDestroy(rank.comm), ncclSuccess); });
  EXPECT_THAT(
      nccl_->functions(1),
      ElementsAre("ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclAllReduce",
                  "ncclCommGetAsyncError", "ncclGroupStart", "ncclGroupEnd", "ncclCommDestroy"));
  // OnRanks has new threads each time.
  EXPECT_THAT(nccl_->ThreadsOf(1), SizeIs(3));
  for (const FakeNcclCall& call : nccl_->calls()) EXPECT_NE(call.result, ncclNumResults);
  ExpectClean();
}

TEST_F(FakeNcclApiTest, ReportsTheVersionItIsGiven) {
  FakeNcclApi::Options options;
  options.version = 22703;
  EXPECT_EQ(FakeNcclApi(options).version, 22703);
}

}  // namespace
}  // namespace cohort::worker
