// The operations that the fake NCCL runs, and those that it refuses.
#include <numeric>

#include "base/tensor/small_float.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_test_base.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kRanks = 3;
using Numbers = std::vector<int32_t>;

class FakeNcclOperationsTest : public FakeNcclTest {
 protected:
  // Returns `size` numbers from 100 * rank on.
  static Numbers From(const Rank& rank, size_t size) {
    Numbers numbers(size);
    std::iota(numbers.begin(), numbers.end(), 100 * rank.rank);
    return numbers;
  }
};

TEST_F(FakeNcclOperationsTest, AllReduce) {
  Form(kRanks);
  OnRanks([&](Rank& rank) {
    const Numbers input = From(rank, 2);
    Numbers output(2);
    Finish(rank, nccl_->AllReduce(input.data(), output.data(), 2, ncclInt32, ncclSum, rank.comm,
                                  rank.stream));
    EXPECT_THAT(output, ElementsAre(300, 303));
    Numbers in_place = input;
    Finish(rank, nccl_->AllReduce(in_place.data(), in_place.data(), 2, ncclInt32, ncclMax,
                                  rank.comm, rank.stream));
    EXPECT_THAT(in_place, ElementsAre(200, 201));
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, ReduceAndBroadcastHaveARoot) {
  Form(kRanks);
  OnRanks([&](Rank& rank) {
    const Numbers input = From(rank, 2);
    Numbers output(2, -1);
    Finish(rank, nccl_->Reduce(input.data(), rank.rank == 1 ? output.data() : nullptr, 2, ncclInt32,
                               ncclSum, 1, rank.comm, rank.stream));
    EXPECT_EQ(output, rank.rank == 1 ? Numbers({300, 303}) : Numbers({-1, -1}));
    Finish(rank, nccl_->Broadcast(rank.rank == 2 ? input.data() : nullptr, output.data(), 2,
                                  ncclInt32, 2, rank.comm, rank.stream));
    EXPECT_THAT(output, ElementsAre(200, 201));
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, GathersAndScatters) {
  Form(kRanks);
  OnRanks([&](Rank& rank) {
    const size_t index = static_cast<size_t>(rank.rank);
    const Numbers one = {rank.rank + 10};
    Numbers all(kRanks, -1);
    Finish(rank, nccl_->AllGather(one.data(), all.data(), 1, ncclInt32, rank.comm, rank.stream));
    EXPECT_THAT(all, ElementsAre(10, 11, 12));

    Numbers gathered(kRanks, -1);
    Finish(rank, nccl_->Gather(one.data(), rank.rank == 0 ? gathered.data() : nullptr, 1, ncclInt32,
                               0, rank.comm, rank.stream));
    EXPECT_EQ(gathered, rank.rank == 0 ? Numbers({10, 11, 12}) : Numbers({-1, -1, -1}));

    const Numbers input = From(rank, kRanks);
    Numbers part(1, -1);
    Finish(rank, nccl_->Scatter(rank.rank == 2 ? input.data() : nullptr, part.data(), 1, ncclInt32,
                                2, rank.comm, rank.stream));
    EXPECT_THAT(part, ElementsAre(200 + rank.rank));

    Finish(rank, nccl_->ReduceScatter(input.data(), part.data(), 1, ncclInt32, ncclSum, rank.comm,
                                      rank.stream));
    EXPECT_THAT(part, ElementsAre(300 + 3 * rank.rank));
    // In place: each in its part of the input.
    Numbers in_place = input;
    Finish(rank, nccl_->ReduceScatter(in_place.data(), in_place.data() + index, 1, ncclInt32,
                                      ncclSum, rank.comm, rank.stream));
    EXPECT_EQ(in_place[index], 300 + 3 * rank.rank);

    Numbers turned(kRanks, -1);
    Finish(rank,
           nccl_->AlltoAll(input.data(), turned.data(), 1, ncclInt32, rank.comm, rank.stream));
    EXPECT_THAT(turned, ElementsAre(rank.rank, 100 + rank.rank, 200 + rank.rank));
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, PreMulSumIsOfItsCommunicatorAndType) {
  Form(2);
  OnRanks([&](Rank& rank) {
    float scale = 0.5f * static_cast<float>(rank.rank + 1);
    ncclRedOp_t op;
    ASSERT_EQ(
        nccl_->RedOpCreatePreMulSum(&op, &scale, ncclFloat32, ncclScalarHostImmediate, rank.comm),
        ncclSuccess);
    scale = 1000;  // was read
    float value = 10;
    Finish(rank, nccl_->AllReduce(&value, &value, 1, ncclFloat32, op, rank.comm, rank.stream));
    EXPECT_EQ(value, 15);
    EXPECT_EQ(nccl_->AllReduce(&value, &value, 1, ncclFloat16, op, rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_EQ(nccl_->RedOpDestroy(op, rank.comm), ncclSuccess);
    EXPECT_EQ(nccl_->RedOpDestroy(op, rank.comm), ncclInvalidArgument);
    EXPECT_EQ(nccl_->AllReduce(&value, &value, 1, ncclFloat32, op, rank.comm, rank.stream),
              ncclInvalidArgument);

    // On the device, the scale is read as the operation runs.
    ASSERT_EQ(nccl_->RedOpCreatePreMulSum(&op, &scale, ncclFloat32, ncclScalarDevice, rank.comm),
              ncclSuccess);
    scale = 2;
    value = 10;
    Finish(rank, nccl_->AllReduce(&value, &value, 1, ncclFloat32, op, rank.comm, rank.stream));
    EXPECT_EQ(value, 40);
    EXPECT_EQ(nccl_->RedOpDestroy(op, rank.comm), ncclSuccess);
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, MessagesOfAGroupRunAtOnce) {
  Form(kRanks);
  OnRanks([&](Rank& rank) {
    const int next = (rank.rank + 1) % kRanks;
    const int before = (rank.rank + kRanks - 1) % kRanks;
    const Numbers mine = {rank.rank};
    Numbers got(2, -1);
    ASSERT_EQ(nccl_->GroupStart(), ncclSuccess);
    // All send first, and to themselves too.
    EXPECT_EQ(nccl_->Send(mine.data(), 1, ncclInt32, next, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(nccl_->Send(mine.data(), 1, ncclInt32, rank.rank, rank.comm, rank.stream),
              ncclSuccess);
    ASSERT_EQ(nccl_->GroupStart(), ncclSuccess);
    EXPECT_EQ(nccl_->Recv(got.data(), 1, ncclInt32, before, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(nccl_->Recv(got.data() + 1, 1, ncclInt32, rank.rank, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(nccl_->GroupEnd(), ncclSuccess);
    // Nothing was issued yet.
    EXPECT_THAT(got, Each(-1));
    Finish(rank, nccl_->GroupEnd());
    EXPECT_THAT(got, ElementsAre(before, rank.rank));
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, OppositeSendsWithoutAGroupHangUntilAbort) {
  Form(2);
  std::vector<Numbers> data(2, Numbers(2, -1));
  OnRanks([&](Rank& rank) {
    int32_t* const mine = data[static_cast<size_t>(rank.rank)].data();
    const int peer = 1 - rank.rank;
    EXPECT_EQ(Await(rank.comm, nccl_->Send(mine, 1, ncclInt32, peer, rank.comm, rank.stream)),
              ncclSuccess);
    EXPECT_EQ(Await(rank.comm, nccl_->Recv(mine + 1, 1, ncclInt32, peer, rank.comm, rank.stream)),
              ncclSuccess);
  });
  for (Rank& rank : ranks_) EXPECT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
  OnRanks([&](Rank& rank) {
    EXPECT_EQ(nccl_->CommAbort(rank.comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  });
  EXPECT_EQ(data[0][1], -1);
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, MismatchedOperationsHangAndAreReported) {
  Form(2);
  Numbers data(2);
  OnRanks([&](Rank& rank) {
    EXPECT_EQ(Await(rank.comm,
                    AllReduce(rank, &data[static_cast<size_t>(rank.rank)], rank.rank == 0 ? 1 : 2)),
              ncclSuccess);
  });
  ASSERT_TRUE(Eventually([&] { return !nccl_->misuses().empty(); }));
  EXPECT_THAT(nccl_->misuses(), ElementsAre(HasSubstr("ranks called different things")));
  for (Rank& rank : ranks_) EXPECT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
}

TEST_F(FakeNcclOperationsTest, EmptyCollectivesDoNotWaitAndEmptyMessagesDo) {
  Form(2);
  Rank& first = ranks_[0];
  Finish(first, AllReduce(first, nullptr, 0));
  OnRanks([&](Rank& rank) {
    ncclResult_t result = ncclSuccess;
    if (rank.rank == 0) {
      result = nccl_->Send(nullptr, 0, ncclInt32, 1, rank.comm, rank.stream);
    } else {
      result = nccl_->Recv(nullptr, 0, ncclInt32, 0, rank.comm, rank.stream);
    }
    Finish(rank, result);
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, ArgumentsThatMakeNoSenseAreRefused) {
  Form(2, true);
  Rank& rank = ranks_[0];
  int32_t value = 0;
  const auto broadcast = [&](void* output, size_t count, ncclDataType_t type, int root) {
    return nccl_->Broadcast(&value, output, count, type, root, rank.comm, rank.stream);
  };
  EXPECT_EQ(broadcast(&value, 1, ncclInt32, 2), ncclInvalidArgument);
  EXPECT_EQ(broadcast(&value, 1, ncclInt32, -1), ncclInvalidArgument);
  EXPECT_EQ(broadcast(&value, 1, ncclNumTypes, 0), ncclInvalidArgument);
  EXPECT_EQ(broadcast(&value, static_cast<size_t>(-1), ncclInt32, 0), ncclInvalidArgument);
  EXPECT_EQ(broadcast(nullptr, 1, ncclInt32, 0), ncclInvalidArgument);
  EXPECT_EQ(nccl_->Send(&value, 1, ncclInt32, 2, rank.comm, rank.stream), ncclInvalidArgument);
  EXPECT_EQ(nccl_->AllReduce(&value, &value, 1, ncclInt32, ncclNumOps, rank.comm, rank.stream),
            ncclInvalidArgument);
  EXPECT_EQ(nccl_->AllReduce(&value, &value, 1, ncclInt32, ncclSum, nullptr, rank.stream),
            ncclInvalidArgument);
  EXPECT_THAT(nccl_->GetLastError(nullptr), HasSubstr("comm is NULL"));
  // One of them spoils its group.
  ASSERT_EQ(nccl_->GroupStart(), ncclSuccess);
  EXPECT_EQ(broadcast(&value, 1, ncclInt32, 0), ncclSuccess);
  EXPECT_EQ(broadcast(&value, 1, ncclInt32, 2), ncclInvalidArgument);
  EXPECT_EQ(nccl_->GroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(nccl_->GroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  EXPECT_THAT(nccl_->misuses(), ElementsAre("ncclGroupEnd without ncclGroupStart"));
}

TEST_F(FakeNcclOperationsTest, TheFirstOperationConnectsAndIsOnItsStreamOnceThatIsSaid) {
  Form(2);
  Numbers data = {1, 2};
  OnRanks([&](Rank& rank) {
    int32_t& mine = data[static_cast<size_t>(rank.rank)];
    EXPECT_EQ(AllReduce(rank, &mine), ncclInProgress);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    EXPECT_EQ(mine, rank.rank + 1);
    Finish(rank, ncclInProgress);
    EXPECT_EQ(mine, 3);
    // Later ones are there at once.
    EXPECT_EQ(AllReduce(rank, &mine), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    EXPECT_EQ(mine, 6);
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, AnOperationBeforeTheLastIsDoneSpoilsTheCommunicator) {
  Form(2);
  Rank& rank = ranks_[0];
  int32_t data = 0;
  EXPECT_EQ(AllReduce(rank, &data), ncclInProgress);
  EXPECT_EQ(AllReduce(rank, &data), ncclInvalidArgument);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(nccl_->CommGetAsyncError(rank.comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInvalidArgument);
  EXPECT_THAT(nccl_->misuses(), ElementsAre(HasSubstr("in progress")));
}

TEST_F(FakeNcclOperationsTest, ACapturedOperationRunsAtEachReplay) {
  Form(2);
  Numbers data = {1, 1};
  OnRanks([&](Rank& rank) {
    int32_t& mine = data[static_cast<size_t>(rank.rank)];
    Finish(rank, AllReduce(rank, &mine));
    cudaGraph_t graph;
    cudaGraphExec_t replayed;
    ASSERT_EQ(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(AllReduce(rank, &mine), ncclSuccess);
    ASSERT_EQ(cudaStreamEndCapture(rank.stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&replayed, graph, 0), cudaSuccess);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(replayed, rank.stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    EXPECT_EQ(mine, 16);
    EXPECT_EQ(cudaGraphExecDestroy(replayed), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
  DestroyAll();
  ExpectClean();
}

TEST_F(FakeNcclOperationsTest, CountsMemoryAndWhatIsRegistered) {
  Form(2, true);
  Rank& rank = ranks_[0];
  void* memory = nullptr;
  ASSERT_EQ(nccl_->MemAlloc(&memory, 1 << 20), ncclSuccess);
  void* buffer = nullptr;
  ncclWindow_t window = nullptr;
  EXPECT_EQ(nccl_->CommRegister(rank.comm, memory, 4096, &buffer), ncclSuccess);
  EXPECT_EQ(nccl_->CommWindowRegister(rank.comm, static_cast<char*>(memory) + 1, 4096, &window, 0),
            ncclInvalidArgument);
  EXPECT_EQ(nccl_->CommWindowRegister(rank.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC),
            ncclSuccess);
  EXPECT_EQ(nccl_->registered(), 2);
  EXPECT_THAT(nccl_->leaks(), UnorderedElementsAre("communicator of rank 0", "1 buffers of rank 0",
                                                   "1 windows of rank 0", "communicator of rank 1",
                                                   "1 pieces of memory"));
  EXPECT_EQ(nccl_->CommDeregister(rank.comm, buffer), ncclSuccess);
  EXPECT_EQ(nccl_->CommWindowDeregister(rank.comm, window), ncclSuccess);
  EXPECT_EQ(nccl_->registered(), 0);
  EXPECT_THAT(nccl_->misuses(), IsEmpty());
  EXPECT_EQ(nccl_->CommDeregister(rank.comm, buffer), ncclInvalidArgument);
  EXPECT_THAT(nccl_->misuses(), Contains(HasSubstr("not registered")));
  EXPECT_EQ(nccl_->MemFree(memory), ncclSuccess);
  DestroyAll();
  EXPECT_THAT(nccl_->leaks(), IsEmpty());
}

TEST_F(FakeNcclOperationsTest, OperationsOnSeveralStreamsRunInTheOrderOfTheirCalls) {
  Form(2);
  std::vector<int32_t> numbers = {1, 1};
  OnRanks([&](Rank& rank) {
    int32_t* const number = &numbers[static_cast<size_t>(rank.rank)];
    const cudaStream_t first = rank.stream;
    cudaStream_t second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    cuda::StreamGate gate;
    ASSERT_EQ(gate.Close(first), cudaSuccess);
    ASSERT_EQ(Await(rank.comm, AllReduce(rank, number)), ncclSuccess);
    ASSERT_EQ(nccl_->Broadcast(number, number, 1, ncclInt32, 0, rank.comm, second), ncclSuccess);
    gate.Open();
    ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_EQ(*number, 2);
    cudaStreamDestroy(second);
  });
  DestroyAll();
  ExpectClean();
}

}  // namespace
}  // namespace cohort::worker
