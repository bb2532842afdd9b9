// Calls and ends of groups with tensors on GPUs. One file, though long: the cases are a
// few lines each, on one fixture.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/stream_gate.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::Group;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

using DeviceGroupTest = DeviceGroups;

TEST_F(DeviceGroupTest, BothKindsOfTensorsAndObjects) {
  Form(Placement::kBoth);
  for (int round = 0; round < 3; ++round) {
    ExpectSums(true);
    ExpectSums(false);
  }
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const auto sizes = group.ExchangeSizes(group.rank());
         if (!sizes.ok()) return sizes.status();
         EXPECT_EQ(*sizes, (client::Sizes{0, 1, 2}));
         return group.Barrier();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// A barrier works in a group without tensors on the host. It does not wait for the work of streams.
TEST_F(DeviceGroupTest, ABarrierRunsOnTheHost) {
  Form(Placement::kDevice);
  std::atomic<int> arrived{0};
  for (const absl::Status& status : Run([&](Group& group) -> absl::Status {
         const auto stream = cuda::Stream::Create(group.rank());
         if (!stream.ok()) return stream.status();
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         cuda::StreamGate gate;
         EXPECT_EQ(gate.Close(stream->get()), cudaSuccess);
         client::CallOptions options;
         options.stream = stream->get();
         absl::Status status = group.AllReduce(*tensor, *tensor, kSum, options);
         for (int round = 1; round <= 10; ++round) {
           ++arrived;
           status.Update(group.Barrier());
           EXPECT_GE(arrived.load(), round * kRanks);
         }
         client::CallOptions soon;
         soon.timeout = absl::Milliseconds(1);
         EXPECT_EQ(group.AwaitStreams(soon).code(), absl::StatusCode::kDeadlineExceeded);
         gate.Open();
         status.Update(group.AwaitStreams());
         const absl::Status refused = group.Barrier(options);
         EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
         EXPECT_THAT(std::string(refused.message()), HasSubstr("barrier on a stream"));
         return status;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         if (group.rank() != 1) return group.Barrier();
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         return group.AllReduce(*tensor, *tensor, kSum);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 0 barrier; rank 1 all_reduce of f32 [4] on GPUs"));
  }
  ExpectSums(true);
}

TEST_F(DeviceGroupTest, OnStreamsNothingIsWaitedFor) {
  Form(Placement::kBoth);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const int rank = group.rank();
         const auto stream = cuda::Stream::Create(rank);
         if (!stream.ok()) return stream.status();
         client::CallOptions options;
         options.stream = stream->get();
         const auto wide = group.Allocate(DataType::kF32, {4, 6}, group.device());
         const auto sums = group.Allocate(DataType::kF32, {4, 3}, group.device());
         const auto all = group.Allocate(DataType::kF32, {4, 9}, group.device());
         std::fill_n(Floats(*wide), 24, static_cast<float>(rank + 1));
         cuda::StreamGate gate;
         EXPECT_EQ(gate.Close(stream->get()), cudaSuccess);
         // Every second column, so that the call copies before and after.
         const Tensor columns = Tensor::Strided(wide->data(), DataType::kF32, {4, 3}, {6, 2},
                                                wide->owner(), wide->device());
         absl::Status status = group.AllReduce(columns, *sums, kSum, options);
         status.Update(group.AllGather(*sums, *all, 1, options));
         client::CallOptions soon;
         soon.timeout = absl::Milliseconds(1);
         EXPECT_EQ(group.AwaitStreams(soon).code(), absl::StatusCode::kDeadlineExceeded);
         gate.Open();
         status.Update(group.AwaitStreams());
         status.Update(cuda::Synchronize(stream->get(), Clock::Steady().Now() + absl::Minutes(1)));
         for (int i = 0; i < 36; ++i) EXPECT_EQ(Floats(*all)[i], 6) << i;
         const Tensor host = Tensor::Zeros(DataType::kF32, {4});
         EXPECT_EQ(group.AllReduce(host, host, kSum, options).code(),
                   absl::StatusCode::kInvalidArgument);
         return status;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  ExpectSums(true);
}

// A thread's default stream belongs to its current device, which need not be its rank's.
TEST_F(DeviceGroupTest, TheDefaultStreamIsTheRanks) {
  constexpr int kElsewhere = 2;
  Form(Placement::kBoth, 2);
  ASSERT_EQ(cudaSetDevice(kElsewhere), cudaSuccess);
  cuda::StreamGate gate;
  ASSERT_EQ(gate.Close(nullptr), cudaSuccess);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         EXPECT_EQ(cudaSetDevice(kElsewhere), cudaSuccess);
         client::CallOptions options;
         options.stream = nullptr;
         options.timeout = absl::Seconds(20);
         const auto wide = group.Allocate(DataType::kF32, {4, 6}, group.device());
         const auto sums = group.Allocate(DataType::kF32, {4, 3}, group.device());
         const auto copy = group.Allocate(DataType::kF32, {4, 3}, group.device());
         std::fill_n(Floats(*wide), 24, static_cast<float>(group.rank() + 1));
         // Every second column, so that the call copies before.
         const Tensor columns = Tensor::Strided(wide->data(), DataType::kF32, {4, 3}, {6, 2},
                                                wide->owner(), wide->device());
         absl::Status status = group.AllReduce(columns, *sums, kSum, options);
         status.Update(group.Copy(*sums, *copy, options));
         status.Update(group.AwaitStreams(options));
         EXPECT_EQ(cudaSetDevice(group.device().index()), cudaSuccess);
         status.Update(cuda::Synchronize(nullptr, Clock::Steady().Now() + absl::Seconds(20)));
         for (int i = 0; i < 12; ++i) EXPECT_EQ(Floats(*copy)[i], 3) << i;
         return status;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  gate.Open();
}

TEST_F(DeviceGroupTest, TheWorkOnAStreamIsAwaited) {
  Form(Placement::kBoth, 1);
  const std::shared_ptr<GpuContext> gpu = GpuOf(1);
  const absl::StatusOr<cuda::Stream> stream = cuda::Stream::Create(1);
  ASSERT_TRUE(stream.ok()) << stream.status();
  cuda::StreamGate gate;
  ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
  EXPECT_EQ(gpu->AwaitStream(stream->get(), absl::Milliseconds(10)).code(),
            absl::StatusCode::kDeadlineExceeded);
  gate.Open();
  EXPECT_EQ(gpu->AwaitStream(stream->get(), absl::Minutes(1)), absl::OkStatus());
}

TEST_F(DeviceGroupTest, TheFlightRecordKnowsTheDevice) {
  Form(Placement::kBoth);
  ExpectSums(true);
  ExpectSums(false);
  const auto record = [](const Group& group) {
    return static_cast<const LocalGroup&>(group).flight_recorder().Read();
  };
  const auto last = [&](const Group& group) { return record(group).back(); };
  for (const auto& group : groups_) {
    EXPECT_EQ(StateOf(last(*group)), "OK");
    EXPECT_FALSE(last(*group).device_started.has_value()) << "on the host";
    const FlightEntry blocking = record(*group)[0];
    ASSERT_TRUE(blocking.device_started.has_value() && blocking.device_ended.has_value());
    EXPECT_GT(*blocking.device_ended, *blocking.device_started);
  }
  std::vector<cuda::Stream> streams;
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto stream = cuda::Stream::Create(rank);
    auto tensor =
        groups_[static_cast<size_t>(rank)]->Allocate(DataType::kF32, {4}, Device::Cuda(rank));
    ASSERT_TRUE(stream.ok() && tensor.ok());
    streams.push_back(*std::move(stream));
    tensors.push_back(*std::move(tensor));
  }
  const auto enqueue = [&](Group& group) {
    const auto at = static_cast<size_t>(group.rank());
    client::CallOptions options;
    options.stream = streams[at].get();
    return group.AllReduce(tensors[at], tensors[at], kSum, options);
  };
  const auto await_state = [&](const std::string& state) {
    for (const auto& group : groups_) {
      const Instant deadline = Clock::Steady().Now() + absl::Minutes(1);
      while (StateOf(last(*group)) != state && Clock::Steady().Now() < deadline) {
        std::this_thread::yield();
      }
      EXPECT_EQ(StateOf(last(*group)), state) << "rank " << group->rank();
    }
  };
  {
    std::vector<cuda::StreamGate> gates(kRanks);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(gates[rank].Close(streams[rank].get()), cudaSuccess);
    }
    for (const absl::Status& status : Run(enqueue)) EXPECT_TRUE(status.ok()) << status;
    await_state("enqueued");
    for (const auto& group : groups_) {
      EXPECT_TRUE(last(*group).took.has_value());
      EXPECT_FALSE(last(*group).device_started.has_value());
    }
  }
  await_state("OK");
  for (const auto& group : groups_) {
    EXPECT_GT(*last(*group).device_ended, *last(*group).device_started);
  }
  nccl_->HangNext();
  for (const absl::Status& status : Run(enqueue)) EXPECT_TRUE(status.ok()) << status;
  await_state("running on the device");
  for (const auto& group : groups_) EXPECT_FALSE(last(*group).device_ended.has_value());
  groups_[1]->Abort(absl::CancelledError("no more"));
  for (const absl::Status& status : Run([](Group& group) { return group.AwaitStreams(); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  }
  await_state("ABORTED");
  for (const auto& group : groups_) {
    EXPECT_GT(*last(*group).device_ended, *last(*group).device_started);
  }
}

// Enqueued work cannot be taken back: the mismatch ends the group.
TEST_F(DeviceGroupTest, ADifferenceOnStreamsIsReportedByTheNextCall) {
  Form(Placement::kBoth);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const auto stream = cuda::Stream::Create(group.rank());
         if (!stream.ok()) return stream.status();
         client::CallOptions options;
         options.stream = stream->get();
         const int64_t count = group.rank() == 1 ? 5 : 4;
         const auto tensor = group.Allocate(DataType::kF32, {count}, group.device());
         if (!tensor.ok()) return tensor.status();
         const absl::Status enqueued = group.AllReduce(*tensor, *tensor, kSum, options);
         if (!enqueued.ok()) return enqueued;
         return group.AllReduce(*tensor, *tensor, kSum);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("4 f32"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("5 f32"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  }
  for (const absl::Status& again : Run([](Group& group) { return group.Rejoin(); })) {
    ASSERT_TRUE(again.ok()) << again;
  }
  ExpectSums(true);
}

TEST_F(DeviceGroupTest, OnDevicesAloneHostTensorsAreRefused) {
  Form(Placement::kDevice);
  for (const absl::Status& status : Run([](Group& group) {
         const Tensor tensor = Tensor::Zeros(DataType::kF32, {4});
         return group.AllReduce(tensor, tensor, kSum);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("all_reduce of f32 [4], in memory of the host: the placement of group "
                          "devices is device"));
  }
  for (const absl::Status& status :
       Run([](Group& group) { return group.ExchangeSizes(7).status(); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  ExpectSums(true);
}

TEST_F(DeviceGroupTest, NothingToExchangeIsNoError) {
  for (const Placement placement : {Placement::kDevice, Placement::kBoth, Placement::kHost}) {
    groups_.clear();
    Form(placement, 2);
    for (const absl::Status& status : Run([&](Group& group) {
           absl::Status status = group.Exchange({});
           if (placement == Placement::kHost) return status;
           client::CallOptions on_stream;
           on_stream.stream = nullptr;
           status.Update(group.Exchange({}, on_stream));
           return status;
         })) {
      EXPECT_TRUE(status.ok()) << NameOf(placement) << ": " << status;
    }
  }
}

TEST_F(DeviceGroupTest, OnTheHostAloneDeviceTensorsAreRefused) {
  Form(Placement::kHost);
  const Tensor tensor(nullptr, DataType::kF32, {4}, nullptr, Device::Cuda(0));
  for (const absl::Status& status :
       Run([&](Group& group) { return group.AllReduce(tensor, tensor, kSum); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("placement of group devices is host"));
  }
  EXPECT_EQ(groups_[0]->Allocate(DataType::kF32, {4}, Device::Cuda(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ExpectSums(false);
}

TEST_F(DeviceGroupTest, DifferentDevicesOfACallFailOnAllRanks) {
  Form(Placement::kBoth);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const bool strange = group.rank() == 2;
         const auto tensor =
             group.Allocate(DataType::kF32, {4}, strange ? Device::Host() : group.device());
         if (!tensor.ok()) return tensor.status();
         return group.AllReduce(*tensor, *tensor, kSum);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("on GPUs"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
  }
  ExpectSums(true);
  ExpectSums(false);
}

// No rank waits on the host for a call on a stream.
TEST_F(DeviceGroupTest, AWrongArgumentOfOneRankOnAStreamEndsTheCallOnAllRanks) {
  Form(Placement::kBoth);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const auto stream = cuda::Stream::Create(group.rank());
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         const auto other = group.Allocate(DataType::kF32, {5}, group.device());
         if (!stream.ok() || !tensor.ok() || !other.ok()) return absl::InternalError("no memory");
         client::CallOptions options;
         options.stream = stream->get();
         absl::Status status =
             group.AllReduce(*tensor, group.rank() == 2 ? *other : *tensor, kSum, options);
         // The refusal may come before the others' calls.
         return status.ok() ? group.AwaitStreams() : status;
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the output is f32 [5] on cuda:2"));
  }
}

TEST_F(DeviceGroupTest, AWrongArgumentOfAllRanksOnAStreamLeavesTheGroupAsItWas) {
  Form(Placement::kBoth);
  for (int round = 0; round < 2; ++round) {
    for (const absl::Status& status : Run([](Group& group) -> absl::Status {
           const auto stream = cuda::Stream::Create(group.rank());
           const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
           const auto other = group.Allocate(DataType::kF32, {5}, group.device());
           client::CallOptions options;
           options.stream = stream->get();
           const absl::Status why = absl::InvalidArgumentError("not a list");
           EXPECT_EQ(group.FailCollectiveAs(why, options), why);
           EXPECT_FALSE(group.AllReduce(*tensor, *other, kSum, options).ok());
           absl::Status status = group.AllReduce(*tensor, *tensor, kSum, options);
           status.Update(group.AwaitStreams());
           return status;
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    ExpectSums(false);
  }
}

TEST_F(DeviceGroupTest, DifferentPlacementsFailOnAllRanks) {
  const std::vector<MadeGroup> made =
      Create({Placement::kBoth, Placement::kHost, Placement::kBoth});
  for (const MadeGroup& rank : made) {
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kInvalidArgument) << rank.status();
    EXPECT_THAT(std::string(rank.status().message()),
                HasSubstr("want different placements: rank 0 both, rank 1 host"));
  }
}

TEST_F(DeviceGroupTest, WithoutAGpuThereIsNoPlacementOnIt) {
  LocalGroupOptions options = Options(0, Placement::kDevice);
  options.gpu_context = nullptr;
  const absl::Status status = LocalGroup::Create(std::move(options)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

TEST_F(DeviceGroupTest, ARankThatCannotFormEndsItForAll) {
  nccl_->FailNext("ncclCommInitRankConfig", ncclUnhandledCudaError, 1);
  const std::vector<MadeGroup> made = Create(std::vector<Placement>(kRanks, Placement::kBoth));
  EXPECT_EQ(made[1].status().code(), absl::StatusCode::kInternal) << made[1].status();
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(made[rank].status().code(), absl::StatusCode::kAborted) << made[rank].status();
    EXPECT_THAT(std::string(made[rank].status().message()), HasSubstr("rank 1"));
  }
}

// The first generation ends while two ranks wait on their devices for the third.
TEST_F(DeviceGroupTest, EndsByNameAndFormsAnew) {
  Form(Placement::kBoth);
  ExpectSums(true);
  for (int rank = 0; rank < kRanks; ++rank) {
    const absl::Status status = Run([&](Group& group) -> absl::Status {
      if (group.rank() == 1) {
        group.Abort(absl::CancelledError("no more"));
        return absl::OkStatus();
      }
      const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
      if (!tensor.ok()) return tensor.status();
      return group.AllReduce(*tensor, *tensor, kSum);
    })[0];
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 aborted: no more"));
    for (const absl::Status& again : Run([](Group& group) { return group.Rejoin(); })) {
      ASSERT_TRUE(again.ok()) << again;
    }
    EXPECT_EQ(groups_[0]->generation(), groups_[2]->generation());
    ExpectSums(true);
  }
}

}  // namespace
}  // namespace cohort::worker
