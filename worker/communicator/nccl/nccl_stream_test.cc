// Operations on callers' streams.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "worker/communicator/nccl/testing/nccl_group_test.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

class NcclStreamTest : public NcclGroupTest {};

TEST_P(NcclStreamTest, OperationsRunOneAfterTheOtherAndTheCallerDoesNotWait) {
  Form(GetParam());
  std::vector<float> numbers(ranks_.size(), 1);
  std::vector<cuda::StreamGate> gates(ranks_.size());
  RunWell([&](NcclCommunicator& group) {
    const auto r = static_cast<size_t>(group.rank());
    EXPECT_EQ(gates[r].Close(stream(group.rank())), cudaSuccess);
    for (int i = 0; i < 5; ++i) {
      COHORT_RETURN_IF_ERROR(EnqueueSum(group, &numbers[r]));
    }
    EXPECT_EQ(numbers[r], 1) << "the stream has not come to it";
    EXPECT_EQ(group.Await(In(absl::ZeroDuration())).code(), absl::StatusCode::kDeadlineExceeded);
    COHORT_RETURN_IF_ERROR(group.Check());
    gates[r].Open();
    return group.Await(Soon());
  });
  for (const float number : numbers) EXPECT_EQ(number, std::pow(GetParam(), 5));
}

TEST_P(NcclStreamTest, EveryCollective) {
  Form(GetParam());
  const int n = GetParam();
  RunWell([&](NcclCommunicator& group) {
    const int r = group.rank();
    const int root = n - 1;
    const auto mine = static_cast<float>(r + 1);
    const float total = static_cast<float>(n * (n + 1)) / 2;
    std::vector<float> all(static_cast<size_t>(n), mine);
    std::vector<float> gathered(all.size()), gathered_at_root(all.size()), exchanged(all.size());
    float one = mine, reduced = 0, cast = mine, scattered_sum = 0, scattered = 0, scaled = 0;
    std::vector<float> ranks(all.size());
    std::iota(ranks.begin(), ranks.end(), 0.F);
    const NcclCallOptions on = On(group);
    const auto enqueue = [&](const FlatCall& operation, const float* input, float* output) {
      return group.Enqueue(operation, input, output, on, Soon());
    };
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kReduce, 1, root), &one, &reduced));
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kBroadcast, 1, root), &cast, &cast));
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kAllGather, 1), &one, gathered.data()));
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kReduceScatter, 1), all.data(), &scattered_sum));
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kAllToAll, 1), all.data(), exchanged.data()));
    COHORT_RETURN_IF_ERROR(
        enqueue(Of(Collective::kGather, 1, root), &one, gathered_at_root.data()));
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kScatter, 1, root), ranks.data(), &scattered));
    FlatCall scale = Of(Collective::kAllReduce, 1);
    scale.reduction = {ReduceOp::kPreMulSum, 0.5};
    COHORT_RETURN_IF_ERROR(enqueue(scale, &one, &scaled));
    COHORT_RETURN_IF_ERROR(enqueue(Of(Collective::kAllReduce, 0), nullptr, nullptr));
    COHORT_RETURN_IF_ERROR(group.Await(Soon()));
    std::vector<float> in_order(all.size());
    std::iota(in_order.begin(), in_order.end(), 1.F);
    if (r == root) {
      EXPECT_EQ(reduced, total);
      EXPECT_EQ(gathered_at_root, in_order);
    }
    EXPECT_EQ(cast, static_cast<float>(n));
    EXPECT_EQ(gathered, in_order);
    EXPECT_EQ(exchanged, in_order);
    EXPECT_EQ(scattered_sum, total);
    EXPECT_EQ(scattered, static_cast<float>(r));
    EXPECT_EQ(scaled, total / 2);
    return absl::OkStatus();
  });
}

TEST_P(NcclStreamTest, WorkEnqueuedAfterwardsFindsTheResult) {
  Form(GetParam());
  RunWell([&](NcclCommunicator& group) {
    const float mine = 3;
    float number = 0, result = 0;
    const cudaStream_t on = stream(group.rank());
    COHORT_RETURN_IF_ERROR(cuda::Copy(&number, &mine, sizeof(mine), on));
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &number));
    COHORT_RETURN_IF_ERROR(cuda::Copy(&result, &number, sizeof(mine), on));
    COHORT_RETURN_IF_ERROR(cuda::Synchronize(on, Soon()));
    EXPECT_EQ(result, static_cast<float>(3 * GetParam()));
    return absl::OkStatus();
  });
}

TEST_P(NcclStreamTest, BlockingOperationsComeBehindThoseInFlight) {
  Form(GetParam());
  RunWell([&](NcclCommunicator& group) {
    float number = 1;
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &number));
    COHORT_RETURN_IF_ERROR(
        group.AllReduce(&number, &number, 1, DataType::kF32, {ReduceOp::kSum}, Soon()));
    EXPECT_EQ(number, static_cast<float>(GetParam() * GetParam()));
    return group.Await(Soon());
  });
}

TEST_P(NcclStreamTest, MessagesGoRound) {
  Form(GetParam());
  const int n = GetParam();
  if (n == 1) return;
  RunWell([&](NcclCommunicator& group) {
    auto mine = static_cast<float>(group.rank());
    float theirs = -1;
    const int next = (group.rank() + 1) % n;
    const int last = (group.rank() + n - 1) % n;
    const Transfer transfers[] = {Transfer::Send(next, &mine, 1, DataType::kF32),
                                  Transfer::Receive(last, &theirs, 1, DataType::kF32)};
    COHORT_RETURN_IF_ERROR(group.Enqueue(transfers, On(group), Soon()));
    COHORT_RETURN_IF_ERROR(group.Await(Soon()));
    EXPECT_EQ(theirs, static_cast<float>(last));
    return absl::OkStatus();
  });
}

TEST_P(NcclStreamTest, SeveralStreamsOfAGroupKeepTheOrderOfCalls) {
  Form(GetParam());
  RunWell([&](NcclCommunicator& group) {
    COHORT_ASSIGN_OR_RETURN(const cuda::Stream other, cuda::Stream::Create(group.rank()));
    float number = 1;
    cuda::StreamGate gate;
    EXPECT_EQ(gate.Close(stream(group.rank())), cudaSuccess);
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &number));
    COHORT_RETURN_IF_ERROR(group.Enqueue(Of(Collective::kAllReduce, 1), &number, &number,
                                         {other.get(), absl::Seconds(60)}, Soon()));
    gate.Open();
    COHORT_RETURN_IF_ERROR(cuda::Synchronize(other.get(), Soon()));
    EXPECT_EQ(number, static_cast<float>(GetParam() * GetParam()));
    return group.Await(Soon());
  });
}

TEST_P(NcclStreamTest, CapturedOperationsRunWithTheirGraph) {
  Form(GetParam());
  std::vector<float> numbers(ranks_.size(), 1);
  RunWell([&](NcclCommunicator& group) {
    const cudaStream_t on = stream(group.rank());
    float warm = 1;
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &warm));
    COHORT_RETURN_IF_ERROR(cuda::Synchronize(on, Soon()));
    EXPECT_EQ(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &numbers[static_cast<size_t>(group.rank())]));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(on, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(executable, on), cudaSuccess);
    COHORT_RETURN_IF_ERROR(group.Check());
    COHORT_RETURN_IF_ERROR(cuda::Synchronize(on, Soon()));
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return absl::OkStatus();
  });
  for (const float number : numbers) EXPECT_EQ(number, std::pow(GetParam(), 3));
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclStreamTest, ::testing::Values(1, 2, 3, 5));

TEST_F(NcclStreamTest, ADeviceErrorIsReportedByTheNextCallOfEachRank) {
  Form(3);
  std::vector<float> numbers(3, 1);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &numbers[static_cast<size_t>(group.rank())]));
    return group.Await(Soon());
  });
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) {
    return EnqueueSum(group, &numbers[static_cast<size_t>(group.rank())]);
  });
  nccl_->InjectAsyncError(1, ncclRemoteError);
  EXPECT_TRUE(Eventually([&] { return !rank(1).Check().ok(); }));
  for (const absl::Status& status : Run([&](NcclCommunicator& group) {
         float number = 1;
         EXPECT_TRUE(Eventually([&] { return !group.Check().ok(); }));
         return EnqueueSum(group, &number);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("all_reduce of 1 f32"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("(operation 2)"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ncclRemoteError"));
  }
  // Their streams are free again, which the end of the test waits for.
}

TEST_F(NcclStreamTest, AnEnqueueThatFailsLeavesTheGroupAsItWas) {
  Form(2);
  float number = 1;
  EXPECT_EQ(
      rank(0).Enqueue(Of(Collective::kBarrier, 0), nullptr, nullptr, On(rank(0)), Soon()).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rank(0)
                .Enqueue(Of(Collective::kAllReduce, 1), &number, &number,
                         {stream(1), absl::Seconds(60)}, Soon())
                .code(),
            absl::StatusCode::kInvalidArgument)
      << "a stream of another device";
  cuda::FailNextCall("cudaEventCreateWithFlags", cudaErrorMemoryAllocation);
  EXPECT_EQ(EnqueueSum(rank(0), &number).code(), absl::StatusCode::kResourceExhausted);
  RunWell([&](NcclCommunicator& group) {
    float one = 1;
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &one));
    return group.Await(Soon());
  });
}

TEST_F(NcclStreamTest, ADeviceThatIsFullHoldsTheCallerBackUntilTheDeadline) {
  Form(1);
  cuda::StreamGate gate;
  ASSERT_EQ(gate.Close(stream(0)), cudaSuccess);
  float number = 1;
  absl::Status status;
  for (int i = 0; i < 1100 && status.ok(); ++i) {
    status = rank(0).Enqueue(Of(Collective::kAllReduce, 1), &number, &number, On(rank(0)),
                             In(i < 1024 ? absl::Seconds(60) : absl::Milliseconds(20)));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  gate.Open();
  EXPECT_EQ(rank(0).Await(Soon()), absl::OkStatus());
  EXPECT_EQ(EnqueueSum(rank(0), &number), absl::OkStatus());
  EXPECT_EQ(rank(0).Await(Soon()), absl::OkStatus());
}

}  // namespace
}  // namespace cohort::worker
