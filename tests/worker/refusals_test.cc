// A daemon or a client finds a mistake before a collective begins. The rank of another daemon,
// which called the collective properly, gets the same error at once, and the group works on.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/tensor.h"
#include "client/rendezvous/report/report.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using client::Group;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::OnThreads;
using testing::Transport;
using Stub = v1::WorkerService::Stub;

constexpr Reduction kSum = {ReduceOp::kSum};
// With fewer bytes, the root of a broadcast does not wait for others, and gets the error later.
constexpr int64_t kMany = 100000;

client::CallOptions Soon() {
  client::CallOptions options;
  options.timeout = kTimeout;
  return options;
}

absl::Status Sum(Group& group) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {4});
  static_cast<float*>(tensor.data())[3] = 1;
  COHORT_RETURN_IF_ERROR(group.AllReduce(tensor, tensor, kSum, Soon()));
  EXPECT_EQ(static_cast<float*>(tensor.data())[3], 2);
  return absl::OkStatus();
}

// Rank 0 is a client of our library, rank 1 a program that speaks the protocol by itself.
class RefusedRequestsTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    StartWorker();
    StartWorker({"--max-message-bytes", "65536"});
    stub_ = StubOf(1);
    reader_ = stub_->OpenSession(&stream_, {});
    v1::SessionEvent event;
    ASSERT_TRUE(reader_->Read(&event));
    session_ = event.opened().session();
    OnThreads(2, [this](int rank) {
      if (rank == 0) {
        auto made = client::RemoteGroup::Create(
            GroupOptionsOf(Connect(0, Transport::kUnix), "group", 0, 2));
        ASSERT_TRUE(made.ok()) << made.status();
        group_ = *std::move(made);
        return;
      }
      v1::JoinGroupRequest join;
      join.set_session(session_);
      join.set_group("group");
      join.set_rank(1);
      join.set_world_size(2);
      v1::JoinGroupResponse joined;
      const grpc::Status status = Call(&Stub::JoinGroup, join, &joined);
      ASSERT_TRUE(status.ok()) << status.error_message();
      number_ = joined.group();
    });
    ASSERT_NE(group_, nullptr);
  }
  void TearDown() override { stream_.TryCancel(); }

  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    return ((*stub_).*method)(&context, request, response);
  }
  v1::RunCollectiveRequest Request(v1::Collective collective) const {
    v1::RunCollectiveRequest request;
    request.set_session(session_);
    request.set_group(number_);
    request.set_collective(collective);
    request.set_reduce_op(static_cast<int>(ReduceOp::kSum));
    request.mutable_timeout()->set_seconds(absl::ToInt64Seconds(kTimeout));
    request.set_in_place(true);
    v1::TensorLayout& layout = *request.mutable_input()->mutable_layout();
    layout.set_data_type(static_cast<int>(DataType::kF32));
    layout.add_shape(4);
    const float values[4] = {0, 0, 0, 1};
    request.mutable_input()->set_inline_(std::string(reinterpret_cast<const char*>(values), 16));
    return request;
  }
  // Rank 1's request, which is refused, beside rank 0's call; then a round in which all is well.
  void ExpectAllRefused(const v1::RunCollectiveRequest& request,
                        const std::function<absl::Status(Group&)>& call, const std::string& why,
                        grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
    SCOPED_TRACE(why);
    grpc::Status own;
    absl::Status other;
    OnThreads(2, [&](int rank) {
      if (rank == 0) {
        other = call(*group_);
        return;
      }
      v1::RunCollectiveResponse response;
      own = Call(&Stub::RunCollective, request, &response);
    });
    EXPECT_EQ(own.error_code(), code) << own.error_message();
    EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument) << other;
    EXPECT_EQ(other.message(), own.error_message());
    EXPECT_THAT(std::string(other.message()), HasSubstr(why));
    EXPECT_THAT(std::string(other.message()), HasSubstr("rank 1"));
    OnThreads(2, [&](int rank) {
      if (rank == 0) {
        const absl::Status well = Sum(*group_);
        EXPECT_TRUE(well.ok()) << well;
        return;
      }
      v1::RunCollectiveResponse response;
      const grpc::Status well =
          Call(&Stub::RunCollective, Request(v1::COLLECTIVE_ALL_REDUCE), &response);
      EXPECT_TRUE(well.ok()) << well.error_message();
    });
  }

  std::unique_ptr<Stub> stub_;
  grpc::ClientContext stream_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> reader_;
  std::string session_;
  uint64_t number_ = 0;
  std::unique_ptr<client::RemoteGroup> group_;
};

TEST_F(RefusedRequestsTest, InvalidTensorsFailOnAllRanks) {
  v1::RunCollectiveRequest request = Request(v1::COLLECTIVE_ALL_REDUCE);
  request.mutable_input()->set_tensor(99);
  ExpectAllRefused(request, Sum, "this session has no tensor 99");
  request = Request(v1::COLLECTIVE_ALL_REDUCE);
  request.mutable_input()->mutable_layout()->set_data_type(77);
  ExpectAllRefused(request, Sum, "77 is not the number of a data type");
  request = Request(v1::COLLECTIVE_ALL_REDUCE);
  request.mutable_input()->mutable_layout()->set_shape(0, -4);
  ExpectAllRefused(request, Sum, "an extent is negative");
  request = Request(v1::COLLECTIVE_ALL_REDUCE);
  request.mutable_input()->set_inline_("too short");
  ExpectAllRefused(request, Sum, "9 came");
}

TEST_F(RefusedRequestsTest, InvalidReductionsAndOutputsFailOnAllRanks) {
  v1::RunCollectiveRequest request = Request(v1::COLLECTIVE_ALL_REDUCE);
  request.set_reduce_op(0);
  ExpectAllRefused(request, Sum, "0 is not the number of a reduction");
  request = Request(v1::COLLECTIVE_ALL_REDUCE);
  request.set_in_place(false);
  *request.mutable_output() = request.input();
  request.mutable_output()->mutable_layout()->set_shape(0, int64_t{1} << 30);
  ExpectAllRefused(request, Sum, "--max-message-bytes", grpc::StatusCode::RESOURCE_EXHAUSTED);
  request = Request(v1::COLLECTIVE_BROADCAST);
  request.mutable_input()->clear_where();
  request.mutable_input()->mutable_layout()->set_shape(0, kMany);
  ExpectAllRefused(
      request,
      [](Group& group) {
        return group.Broadcast(Tensor::Zeros(DataType::kF32, {kMany}), 1, Soon());
      },
      "neither inline nor one of the session's");
}

TEST_F(RefusedRequestsTest, APlacementOnGpusThatIsNotAttached) {
  v1::JoinGroupRequest join;
  join.set_session(session_);
  join.set_group("gpus");
  join.set_rank(0);
  join.set_world_size(1);
  join.set_placement(static_cast<int>(Placement::kBoth));
  v1::JoinGroupResponse joined;
  const grpc::Status status = Call(&Stub::JoinGroup, join, &joined);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("the daemon moves host memory only"));
}

class RefusedTensorsTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    StartWorker();
    StartWorker();
    groups_ = JoinAll({Connect(0, Transport::kUnix), Connect(1, Transport::kRemoteTcp)}, "group");
    for (const auto& group : groups_) ASSERT_NE(group, nullptr);
  }

  Groups groups_;
};

constexpr char kNoGpus[] =
    "a RemoteGroup moves host memory only; use LocalGroup or AttachedGroup for GPUs";

TEST_F(RefusedTensorsTest, GpuTensorsAreRefusedInARemoteGroup) {
  const Tensor of_gpu(nullptr, DataType::kF32, {kMany}, nullptr, Device::Cuda(0));
  const Tensor of_host = Tensor::Zeros(DataType::kF32, {kMany});
  const std::vector<std::function<absl::Status(Group&, const Tensor&)>> calls = {
      [](Group& group, const Tensor& tensor) {
        return group.AllReduce(tensor, tensor, kSum, Soon());
      },
      [&](Group& group, const Tensor& tensor) {
        return group.AllReduce(of_host, tensor, kSum, Soon());
      },
      [](Group& group, const Tensor& tensor) { return group.Broadcast(tensor, 0, Soon()); },
  };
  for (const auto& call : calls) {
    for (const int strange : {0, 1}) {
      const std::vector<absl::Status> statuses = OnRanks(groups_, [&](Group& group) {
        return call(group, group.rank() == strange ? of_gpu : of_host);
      });
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(kNoGpus));
        EXPECT_EQ(status.message(), statuses[0].message());
      }
      ExpectOk(OnRanks(groups_, Sum));
    }
  }
}

TEST_F(RefusedTensorsTest, GpuTensorsInCallsOfOneRankAreRefused) {
  const Tensor of_gpu(nullptr, DataType::kF32, {4}, nullptr, Device::Cuda(0));
  const Tensor of_host = Tensor::Zeros(DataType::kF32, {4});
  client::CallOptions on_stream = Soon();
  on_stream.stream = nullptr;  // the default one
  Group& group = *groups_[0];
  for (const absl::Status& status :
       {group.Allocate(DataType::kF32, {4}, Device::Cuda(0)).status(), group.Copy(of_host, of_gpu),
        group.Copy(of_gpu, of_host), group.Copy(of_host, of_host, on_stream),
        group.Send(of_gpu, 1, Soon()), group.Receive(of_gpu, 1, Soon()),
        group.AllReduce(of_host, of_host, kSum, on_stream)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kNoGpus));
    EXPECT_THAT(std::string(status.message()), HasSubstr("; group group, rank 0"));
  }
  EXPECT_EQ(group.AwaitStreams(), absl::OkStatus());
  ExpectOk(OnRanks(groups_, Sum));
}

TEST_F(RefusedTensorsTest, AsThePlacementOfARemoteGroup) {
  for (const Placement placement : {Placement::kDevice, Placement::kBoth}) {
    client::RemoteGroupOptions options = GroupOptionsOf(Connect(0, Transport::kUnix), "gpus", 0, 1);
    options.placement = placement;
    const absl::Status status = client::RemoteGroup::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kNoGpus));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("group gpus has placement ", NameOf(placement))));
  }
}

TEST_F(RefusedTensorsTest, AJoinThatIsTooLateHasTheCoordinatorsError) {
  client::RemoteGroupOptions options = GroupOptionsOf(Connect(0, Transport::kUnix), "late", 0, 2);
  options.join_timeout = absl::Milliseconds(100);
  const absl::Status status = client::RemoteGroup::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 2 missing: rank 1"));
  const client::ErrorInfo info = client::GetErrorInfo(status);
  EXPECT_EQ(info.group, "late");
  EXPECT_EQ(info.operation, "join");
  EXPECT_EQ(info.missing, std::vector<RankRange>({{1, 1}}));
}

}  // namespace
}  // namespace cohort
