// The calls that a flight record numbers in groups with GPUs. All ranks number the same calls, so
// that one call has one number everywhere, even after calls that only some ranks made.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::Group;
using ::testing::HasSubstr;

class DeviceNumbersTest : public DeviceGroups {
 protected:
  static std::vector<FlightEntry> RecordOf(const Group& group) {
    return static_cast<const LocalGroup&>(group).flight_recorder().Read();
  }
  void RunWell(const std::function<absl::Status(Group&)>& body) {
    for (const absl::Status& status : Run(body)) EXPECT_TRUE(status.ok()) << status;
  }
  // Compares the number of the last call that all ranks made.
  void ExpectSameNumbers() {
    ExpectSums(true);
    for (const auto& group : groups_) {
      EXPECT_EQ(RecordOf(*group).back().number, RecordOf(*groups_[0]).back().number)
          << "rank " << group->rank();
    }
  }
};

TEST_F(DeviceNumbersTest, LooksForMessagesLeaveNoTrace) {
  Form(Placement::kBoth, 2);
  ExpectSums(false);
  RunWell([](Group& group) -> absl::Status {
    const size_t before = RecordOf(group).size();
    const int other = 1 - group.rank();
    client::CallOptions at_once;
    at_once.timeout = absl::ZeroDuration();
    for (int look = 0; look < 100; ++look) {
      const absl::Status none =
          group.AwaitMessage(absl::MakeConstSpan(&other, 1), at_once).status();
      EXPECT_EQ(none.code(), absl::StatusCode::kDeadlineExceeded) << none;
      EXPECT_EQ(none.message(), absl::StrCat("no message of rank ", other));
    }
    EXPECT_EQ(group.AwaitMessage({}, at_once).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(RecordOf(group).size(), before);
    at_once.timeout = absl::Milliseconds(1);
    group.AwaitMessage(absl::MakeConstSpan(&other, 1), at_once).status().IgnoreError();
    EXPECT_EQ(RecordOf(group).size(), before + 1) << "a wait does";
    return absl::OkStatus();
  });
}

TEST_F(DeviceNumbersTest, ACallOnAStreamThatAllRanksRefuseIsNotCounted) {
  Form(Placement::kBoth, 2);
  RunWell([](Group& group) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create(group.rank()));
    client::CallOptions on_stream;
    on_stream.stream = stream.get();
    COHORT_ASSIGN_OR_RETURN(const Tensor four, group.Allocate(DataType::kF32, {4}, group.device()));
    COHORT_ASSIGN_OR_RETURN(const Tensor three,
                            group.Allocate(DataType::kF32, {3}, group.device()));
    EXPECT_EQ(group.AllReduce(four, three, kSum, on_stream).code(),
              absl::StatusCode::kInvalidArgument);
    const Tensor host = Tensor::Zeros(DataType::kF32, {4});
    EXPECT_EQ(group.AllReduce(host, host, kSum, on_stream).code(),
              absl::StatusCode::kInvalidArgument);
    COHORT_RETURN_IF_ERROR(group.AllReduce(four, four, kSum, on_stream));
    return group.AwaitStreams();
  });
  ExpectSameNumbers();
}

TEST_F(DeviceNumbersTest, ACapturedCallIsNotCounted) {
  Form(Placement::kBoth);
  const std::vector<absl::Status> statuses = Run([](Group& group) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const Tensor four, group.Allocate(DataType::kF32, {4}, group.device()));
    COHORT_ASSIGN_OR_RETURN(const Tensor three,
                            group.Allocate(DataType::kF32, {3}, group.device()));
    // Rank 1 does not reach the third call.
    return group
        .Record([&](Group& recorder) -> absl::Status {
          COHORT_RETURN_IF_ERROR(recorder.AllReduce(four, four, kSum));
          COHORT_RETURN_IF_ERROR(
              recorder.AllReduce(four, recorder.rank() == 1 ? three : four, kSum));
          return recorder.AllReduce(four, four, kSum);
        })
        .status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  ExpectSameNumbers();
}

// A GPU context whose calls have no host barrier, as with NcclAgreement::kOff.
class NoHostBarrier final : public GpuContext {
 public:
  explicit NoHostBarrier(std::shared_ptr<GpuContext> gpu) : gpu_(std::move(gpu)) {}

  Device device() const override { return gpu_->device(); }
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override {
    return gpu_->Allocate(type, shape);
  }
  absl::Status Copy(absl::Span<const client::TensorCopy> copies, std::optional<void*> stream,
                    absl::Duration timeout) override {
    return gpu_->Copy(copies, stream, timeout);
  }
  absl::Status AwaitStream(void* stream, absl::Duration timeout) override {
    return gpu_->AwaitStream(stream, timeout);
  }
  absl::StatusOr<std::unique_ptr<DeviceSide>> Form(
      UniqueIdExchange& ids, Communicator& host,
      std::shared_ptr<const NcclOperationLog> operation_log, DeviceProgress* progress,
      absl::Duration timeout) override {
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceSide> side,
                            gpu_->Form(ids, host, std::move(operation_log), progress, timeout));
    return std::make_unique<Side>(std::move(side));
  }

 private:
  class Side final : public DeviceSide {
   public:
    explicit Side(std::unique_ptr<DeviceSide> side) : side_(std::move(side)) {}
    Communicator& communicator() override { return side_->communicator(); }
    TensorCollectives& collectives() override { return side_->collectives(); }
    bool has_host_barrier() const override { return false; }
    absl::Status OnStream(void* stream, absl::Duration timeout,
                          absl::FunctionRef<absl::Status(TensorCollectives&)> body) override {
      return side_->OnStream(stream, timeout, body);
    }
    absl::Status Refuse(void* stream, absl::string_view why, Instant deadline) override {
      return side_->Refuse(stream, why, deadline);
    }
    absl::StatusOr<std::shared_ptr<DeviceReplay>> Capture(
        int calls, uint32_t digest, absl::FunctionRef<absl::Status(void* stream)> body) override {
      return side_->Capture(calls, digest, body);
    }
    absl::Status AwaitStreams(Instant deadline) override { return side_->AwaitStreams(deadline); }

   private:
    const std::unique_ptr<DeviceSide> side_;
  };

  const std::shared_ptr<GpuContext> gpu_;
};

class NoHostBarrierTest : public DeviceNumbersTest {
 protected:
  MadeGroup Make(int rank, Placement placement) override {
    LocalGroupOptions options = Options(rank, placement);
    options.gpu_context = std::make_shared<NoHostBarrier>(options.gpu_context);
    return LocalGroup::Create(std::move(options));
  }
};

TEST_F(NoHostBarrierTest, WithoutAHostBarrierAFailedCollectiveDoesNotWait) {
  Form(Placement::kBoth, 2);
  {
    Group& group = *groups_[1];
    const absl::StatusOr<Tensor> four = group.Allocate(DataType::kF32, {4}, group.device());
    const absl::StatusOr<Tensor> three = group.Allocate(DataType::kF32, {3}, group.device());
    ASSERT_TRUE(four.ok() && three.ok());
    client::CallOptions soon;
    soon.timeout = absl::Seconds(1);
    // Rank 0 makes no call.
    const absl::Status own = group.AllReduce(*four, *three, kSum, soon);
    EXPECT_EQ(own.code(), absl::StatusCode::kInvalidArgument) << own;
    EXPECT_THAT(std::string(own.message()), HasSubstr("the output is"));
  }
  ExpectSameNumbers();
  // All ranks wait for each other through the host.
  for (const absl::Status& status : Run([](Group& group) {
         const Tensor four = Tensor::Zeros(DataType::kF32, {4});
         const Tensor three = Tensor::Zeros(DataType::kF32, {3});
         return group.AllReduce(four, group.rank() == 1 ? three : four, kSum);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  ExpectSameNumbers();
}

}  // namespace
}  // namespace cohort::worker
