// Sequences that are recorded on GPUs, and replayed.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
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

class DeviceSequenceTest : public DeviceGroups {
 protected:
  // Records `body` on all ranks, with four floats on each rank's GPU. Returns the statuses.
  std::vector<absl::Status> Record(
      const std::function<absl::Status(Group& recorder, const Tensor& tensor)>& body) {
    return Run([&](Group& group) -> absl::Status {
      COHORT_ASSIGN_OR_RETURN(const Tensor tensor,
                              group.Allocate(DataType::kF32, {4}, group.device()));
      return group.Record([&](Group& recorder) { return body(recorder, tensor); }).status();
    });
  }
};

// Captured work with copies of odd layouts and with messages.
TEST_F(DeviceSequenceTest, ReplaysWithThePresentElements) {
  Form(Placement::kBoth);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const int rank = group.rank();
         const auto wide = group.Allocate(DataType::kF32, {4, 6}, group.device());
         const auto sums = group.Allocate(DataType::kF32, {4, 3}, group.device());
         const auto all = group.Allocate(DataType::kF32, {4, 9}, group.device());
         const auto got = group.Allocate(DataType::kF32, {4, 3}, group.device());
         const Tensor columns = Tensor::Strided(wide->data(), DataType::kF32, {4, 3}, {6, 2},
                                                wide->owner(), wide->device());
         std::fill_n(Floats(*all), 36, -1.F);
         auto sequence = group.Record([&](Group& recorder) {
           absl::Status recorded = recorder.AllReduce(columns, *sums, kSum);
           if (rank == 0) recorded.Update(recorder.Send(*sums, 2));
           if (rank == 2) recorded.Update(recorder.Receive(*got, 0));
           recorded.Update(recorder.AllGather(*sums, *all, 1));
           recorded.Update(recorder.Broadcast(*got, 2));
           return recorded;
         });
         if (!sequence.ok()) return sequence.status();
         EXPECT_EQ((*sequence)->size(), rank == 1 ? 3 : 4);
         EXPECT_EQ(Floats(*all)[0], -1) << "recording does nothing";
         for (int round = 1; round <= 4; ++round) {
           std::fill_n(Floats(*wide), 24, static_cast<float>(round * (rank + 1)));
           const absl::Status status = (*sequence)->Replay({});
           if (!status.ok()) return status;
           for (int i = 0; i < 36; ++i) EXPECT_EQ(Floats(*all)[i], 6 * round) << i;
           EXPECT_EQ(Floats(*got)[11], 6 * round);
         }
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  ExpectSums(true);
}

TEST_F(DeviceSequenceTest, ReplaysOnAStreamUntilTheGenerationEnds) {
  Form(Placement::kBoth);
  std::vector<std::unique_ptr<client::Sequence>> sequences(kRanks);
  for (const absl::Status& status : Run([&](Group& group) -> absl::Status {
         const auto at = static_cast<size_t>(group.rank());
         const auto stream = cuda::Stream::Create(group.rank());
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         std::fill_n(Floats(*tensor), 4, 1.F);
         auto sequence = group.Record([&](Group& recorder) {
           absl::Status recorded = recorder.AllReduce(*tensor, *tensor, kSum);
           recorded.Update(recorder.AllReduce(*tensor, *tensor, {ReduceOp::kMax}));
           return recorded;
         });
         if (!sequence.ok()) return sequence.status();
         cuda::StreamGate gate;
         EXPECT_EQ(gate.Close(stream->get()), cudaSuccess);
         client::CallOptions options;
         options.stream = stream->get();
         absl::Status status;
         for (int i = 0; i < 3; ++i) status.Update((*sequence)->Replay(options));
         EXPECT_EQ(Floats(*tensor)[3], 1) << "the stream has not come to it";
         gate.Open();
         status.Update(group.AwaitStreams());
         EXPECT_EQ(Floats(*tensor)[3], 27);
         sequences[at] = *std::move(sequence);
         return status;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const absl::Status& again : Run([](Group& group) { return group.Rejoin(); })) {
    ASSERT_TRUE(again.ok()) << again;
  }
  for (const absl::Status& status : Run([&](Group& group) {
         return sequences[static_cast<size_t>(group.rank())]->Replay({});
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
  ExpectSums(true);
}

TEST_F(DeviceSequenceTest, DifferentReplaysFailOnAllRanks) {
  Form(Placement::kDevice);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         const auto record = [&](int calls) {
           return group.Record([&](Group& recorder) {
             absl::Status recorded;
             for (int i = 0; i < calls; ++i) recorded.Update(recorder.Broadcast(*tensor, 0));
             return recorded;
           });
         };
         const auto one = record(1);
         const auto two = record(2);
         if (!one.ok() || !two.ok()) return absl::UnknownError("not recorded");
         const absl::Status status = (group.rank() == 2 ? *two : *one)->Replay({});
         EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
         EXPECT_THAT(std::string(status.message()), HasSubstr("replay of 1 recorded calls"));
         EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 replay of 2 recorded calls"));
         return (*two)->Replay({});
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(DeviceSequenceTest, NamesTheRankThatCannotCapture) {
  Form(Placement::kBoth);
  const std::vector<absl::Status> statuses = Run([](Group& group) {
    const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
    const auto three = group.Allocate(DataType::kF32, {3}, group.device());
    return group
        .Record([&](Group& recorder) {
          return recorder.AllReduce(*tensor, recorder.rank() == 1 ? *three : *tensor, kSum);
        })
        .status();
  });
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("call 1 recorded: "));
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument) << statuses[rank];
    EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr("rank 1 could not record"));
  }
}

TEST_F(DeviceSequenceTest, NamesTheFirstCallThatDiffers) {
  Form(Placement::kBoth);
  const auto body = [](Group& recorder, const Tensor& tensor) {
    absl::Status recorded = recorder.AllReduce(tensor, tensor, kSum);
    recorded.Update(recorder.Broadcast(tensor, recorder.rank() == 2 ? 2 : 1));
    return recorded;
  };
  for (const absl::Status& status : Record(body)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("call 2 is, of rank 0, broadcast of f32 [4] on GPUs, root 1, and of rank "
                          "2 broadcast of f32 [4] on GPUs, root 2"));
  }
  // Record ran no call, so the group still works.
  ExpectSums(true);
}

// The body ignores the error; Record returns it, and the other ranks get its text.
TEST_F(DeviceSequenceTest, CallsThatCannotBeRecordedFailOnAllRanks) {
  Form(Placement::kBoth);
  const Tensor host = Tensor::Zeros(DataType::kF32, {4});
  const std::pair<std::string, std::function<absl::Status(Group&)>> calls[] = {
      {"SendObject", [](Group& recorder) { return recorder.SendObject("", 0); }},
      {"Allocate", [](Group& recorder) { return recorder.Allocate(DataType::kF32, {4}).status(); }},
      {"ExchangeSizes", [](Group& recorder) { return recorder.ExchangeSizes(1).status(); }},
      {"BroadcastObject", [](Group& recorder) { return recorder.BroadcastObject("", 0).status(); }},
      {"barrier", [](Group& recorder) { return recorder.Barrier(); }},
      {"Exchange in host memory", [&](Group& recorder) { return recorder.Send(host, 0); }},
      {"all_reduce of f32 [4] by sum in host memory",
       [&](Group& recorder) { return recorder.AllReduce(host, host, kSum); }},
  };
  for (const auto& [name, call] : calls) {
    const std::vector<absl::Status> statuses =
        Record([&, &call = call](Group& recorder, const Tensor& tensor) {
          if (recorder.rank() == 1) {
            EXPECT_FALSE(call(recorder).ok());
          }
          return recorder.AllReduce(tensor, tensor, kSum);
        });
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kFailedPrecondition) << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr(name + " cannot be recorded"));
    for (const size_t rank : {0, 2}) {
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument) << statuses[rank];
      EXPECT_THAT(std::string(statuses[rank].message()),
                  HasSubstr("of rank 1 not recorded: " + name + " cannot be recorded"));
    }
  }
  for (const absl::Status& status :
       Record([](Group&, const Tensor&) { return absl::CancelledError("enough"); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << "not the error of the body";
  }
  ExpectSums(true);
  ExpectSums(false);
}

TEST_F(DeviceSequenceTest, ASequenceHasACollective) {
  Form(Placement::kDevice);
  for (const absl::Status& status : Record([](Group& recorder, const Tensor& tensor) {
         if (recorder.rank() == 0) return recorder.Send(tensor, 1);
         if (recorder.rank() == 1) return recorder.Receive(tensor, 0);
         return absl::OkStatus();
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no collective, expected at least one"));
  }
  ExpectSums(true);
}

TEST_F(DeviceSequenceTest, AGroupInHostMemoryRecordsNothing) {
  Form(Placement::kHost);
  for (const absl::Status& status : Run([](Group& group) {
         return group.Record([](Group&) { return absl::OkStatus(); }).status();
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("group devices has no GPU tensors"));
  }
  ExpectSums(false);
}

}  // namespace
}  // namespace cohort::worker
