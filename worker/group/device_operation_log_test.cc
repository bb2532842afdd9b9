// Errors that ranks of one host find in the operation log that they got when they connected.
#include <string>
#include <vector>

#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::Group;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceOperationLogTest : public DeviceGroups {
 protected:
  // Enqueues a sum of `count` numbers on a new stream.
  absl::Status EnqueueSum(Group& group, int64_t count, absl::Duration timeout) {
    absl::StatusOr<cuda::Stream> stream = cuda::Stream::Create(group.rank());
    if (!stream.ok()) return stream.status();
    const auto tensor = group.Allocate(DataType::kF32, {count}, group.device());
    if (!tensor.ok()) return tensor.status();
    CallOptions options;
    options.stream = stream->get();
    options.timeout = timeout;
    const absl::Status enqueued = group.AllReduce(*tensor, *tensor, kSum, options);
    // A hanging operation uses both.
    MutexLock lock(&mutex_);
    streams_.push_back(*std::move(stream));
    tensors_.push_back(*tensor);
    return enqueued;
  }
  void TearDown() override {
    groups_.clear();
    for (cuda::Stream& stream : streams_) {
      EXPECT_TRUE(cuda::Synchronize(stream.get(), Clock::Steady().Now() + absl::Minutes(1)).ok());
    }
  }
  void RejoinAll() {
    for (const absl::Status& again : Run([](Group& group) { return group.Rejoin(); })) {
      ASSERT_TRUE(again.ok()) << again;
    }
    ExpectSums(true);
  }

  Mutex mutex_;
  std::vector<cuda::Stream> streams_;
  std::vector<Tensor> tensors_;
};

// No rank makes a further call that would wait for the others.
TEST_F(DeviceOperationLogTest, ADifferenceOnStreamsIsFoundWithoutAnotherCall) {
  for (const Placement placement : {Placement::kBoth, Placement::kDevice}) {
    groups_.clear();
    Form(placement, 2);
    for (int generation = 0; generation < 2; ++generation) {
      for (const absl::Status& status : Run([&](Group& group) -> absl::Status {
             const absl::Status enqueued =
                 EnqueueSum(group, group.rank() == 1 ? 5 : 4, absl::Minutes(5));
             return enqueued.ok() ? group.AwaitStreams() : enqueued;
           })) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("4 f32"), HasSubstr("5 f32"), HasSubstr("rank 1")));
      }
      RejoinAll();
    }
  }
}

TEST_F(DeviceOperationLogTest, ARankThatNeverComesToAnOperationOnAStreamIsNamed) {
  Form(Placement::kBoth);
  const std::vector<absl::Status> statuses = Run([&](Group& group) -> absl::Status {
    if (group.rank() == 1) return absl::OkStatus();
    const absl::Status enqueued = EnqueueSum(group, 4, absl::Milliseconds(200));
    return enqueued.ok() ? group.AwaitStreams() : enqueued;
  });
  for (const size_t rank : {0, 2}) {
    EXPECT_FALSE(statuses[rank].ok());
    EXPECT_THAT(
        std::string(statuses[rank].message()),
        AllOf(HasSubstr("all_reduce of 4 f32 by sum"), HasSubstr("not come to it: ranks 1")));
  }
  // The late rank gets the error when it calls.
  const absl::Status late = groups_[1]->AwaitStreams({});
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("not come to it: ranks 1"));
  RejoinAll();
}

TEST_F(DeviceOperationLogTest, ARankAloneAndRanksOfSeveralHostsDoWithout) {
  Form(Placement::kBoth, 1);
  ExpectSums(true);
  groups_.clear();
  hosts_ = {"here", "there", "here"};
  Form(Placement::kBoth);
  ExpectSums(true);
  const std::vector<absl::Status> statuses = Run([&](Group& group) -> absl::Status {
    if (group.rank() == 1) return absl::OkStatus();
    const absl::Status enqueued = EnqueueSum(group, 4, absl::Milliseconds(200));
    return enqueued.ok() ? group.AwaitStreams() : enqueued;
  });
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("the missing ranks are not known"));
}

}  // namespace
}  // namespace cohort::worker
