// Tensors on GPUs of clients, in groups whose ranks live in a daemon. The daemon maps the client's
// memory, and its streams and the client's keep one order. The processes are real: on the fake CUDA
// runtime and the fake NCCL, all ranks are in one daemon; on one GPU and the real ones, each rank
// has a daemon. One file, though long: the fixture makes these two machines look alike, and every
// case needs it.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/collective/remote/device_tensors.h"
#include "client/collective/remote/worker_session_impl.h"
#include "client/rendezvous/admin_client.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/stream_gate.h"
#include "worker/group/shared_gpu/cuda_gpu.h"
#include "worker/group/testing/nccl_settings.h"
#ifndef COHORT_TEST_ON_GPU
#include "worker/cuda/testing/fake_runtime.h"
#endif

namespace cohort {
namespace {

using client::CallOptions;
using client::Group;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::OnThreads;
using testing::Transport;
using worker::CudaGpu;
using worker::cuda::StreamGate;

#ifdef COHORT_TEST_ON_GPU
constexpr bool kOnGpu = true;
constexpr int kRanks = 2;
#else
constexpr bool kOnGpu = false;
constexpr int kRanks = 3;
#endif
constexpr float kSumOfRanks = kRanks * (kRanks + 1) / 2;
constexpr Reduction kSum = {ReduceOp::kSum};

Instant Soon() { return Clock::Steady().Now() + testing::kTimeout; }
// The device of rank `rank`.
int DeviceOf(int rank) { return kOnGpu ? 0 : rank; }

// Copies through a stream of its own, so that it waits for no other work.
void CopyFloats(float* to, const float* from, int64_t count, int device) {
  const absl::StatusOr<worker::cuda::Stream> stream = worker::cuda::Stream::Create(device);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  ASSERT_EQ(worker::cuda::Copy(to, from, bytes, stream->get()), absl::OkStatus());
  ASSERT_EQ(worker::cuda::Synchronize(stream->get(), Soon()), absl::OkStatus());
}
// `tensor` is contiguous, on the host or on a device.
void Write(const Tensor& tensor, const std::vector<float>& values) {
  auto* const data = static_cast<float*>(tensor.data());
  if (tensor.device().is_host()) {
    std::copy(values.begin(), values.end(), data);
  } else {
    CopyFloats(data, values.data(), tensor.count(), tensor.device().index());
  }
}
std::vector<float> Read(const Tensor& tensor) {
  const auto* const data = static_cast<const float*>(tensor.data());
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  if (tensor.device().is_host()) {
    std::copy_n(data, values.size(), values.begin());
  } else {
    CopyFloats(values.data(), data, tensor.count(), tensor.device().index());
  }
  return values;
}
void Fill(const Tensor& tensor, float value) {
  Write(tensor, std::vector<float>(static_cast<size_t>(tensor.count()), value));
}

class DeviceTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
#ifndef COHORT_TEST_ON_GPU
    worker::cuda::FakeMachine machine;
    machine.devices = kRanks;
    worker::cuda::ResetFakeRuntime(machine);
    worker_binary_ = "tests/worker/fake_gpu_worker";
#endif
    if (const absl::Status devices = worker::cuda::DeviceCount().status(); !devices.ok()) {
      GTEST_SKIP() << "needs a GPU: " << devices;
    }
    WorkerTest::SetUp();
    for (int i = 0; i < (kOnGpu ? kRanks : 1); ++i) {
      std::vector<std::string> environment;
      if (kOnGpu) {
        for (const auto& [name, value] : testing::NcclSettingsOnOneGpu(i)) {
          environment.push_back(absl::StrCat(name, "=", value));
        }
      }
      StartWorker({}, environment);
    }
  }
  void TearDown() override {
    groups_.clear();
    sessions_.clear();
#ifndef COHORT_TEST_ON_GPU
    EXPECT_EQ(worker::cuda::AliveInFakeRuntime(), "");
#endif
  }
  bool AwaitAllEmpty() const {
    for (int i = 0; i < (kOnGpu ? kRanks : 1); ++i) {
      if (!AwaitEmpty(i)) return false;
    }
    return true;
  }

  client::RemoteGroupOptions RankOptions(int rank, int size, const std::string& name) {
    const auto at = static_cast<size_t>(rank);
    while (sessions_.size() <= at) {
      sessions_.push_back(
          Connect(kOnGpu ? static_cast<int>(sessions_.size()) : 0, Transport::kUnix));
    }
    client::RemoteGroupOptions rank_options = GroupOptionsOf(sessions_[at], name, rank, size);
    rank_options.placement = Placement::kBoth;
    rank_options.gpu = std::make_shared<CudaGpu>(DeviceOf(rank));
    return rank_options;
  }
  void Form(int size, const std::string& name = "devices") {
    std::vector<client::RemoteGroupOptions> rank_options;
    for (int rank = 0; rank < size; ++rank) rank_options.push_back(RankOptions(rank, size, name));
    groups_.clear();
    groups_.resize(static_cast<size_t>(size));
    OnThreads(size, [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      absl::StatusOr<std::unique_ptr<client::RemoteGroup>> group =
          client::RemoteGroup::Create(rank_options[at]);
      EXPECT_TRUE(group.ok()) << group.status();
      if (group.ok()) groups_[at] = *std::move(group);
    });
    for (const auto& group : groups_) ASSERT_NE(group, nullptr);
  }

  // Returns 5 floats with the value rank + 1.
  static absl::StatusOr<Tensor> Ranks(Group& group, Device device) {
    absl::StatusOr<Tensor> tensor = group.Allocate(DataType::kF32, {5}, device);
    if (tensor.ok()) Fill(*tensor, static_cast<float>(group.rank() + 1));
    return tensor;
  }
  void ExpectSums() {
    ExpectOk(OnRanks(groups_, [&](Group& group) -> absl::Status {
      for (const Device device : {group.device(), Device::Host()}) {
        const absl::StatusOr<Tensor> tensor = Ranks(group, device);
        if (!tensor.ok()) return tensor.status();
        EXPECT_EQ(tensor->device(), device);
        const absl::Status status = group.AllReduce(*tensor, *tensor, kSum);
        if (!status.ok()) return status;
        const int size = group.size();
        EXPECT_EQ(Read(*tensor)[4], static_cast<float>(size * (size + 1) / 2));
      }
      return absl::OkStatus();
    }));
  }

  std::vector<std::shared_ptr<client::WorkerSession>> sessions_;
  Groups groups_;
};

TEST_F(DeviceTest, BothKindsOfTensors) {
  Form(kRanks);
  for (int round = 0; round < 3; ++round) ExpectSums();
  EXPECT_EQ(groups_[1]->placement(), Placement::kBoth);
  EXPECT_EQ(groups_[1]->device(), Device::Cuda(DeviceOf(1)));
  groups_.clear();
  sessions_.clear();
  EXPECT_TRUE(AwaitAllEmpty());
}

TEST_F(DeviceTest, TheMissingReportNamesTheRankThatDoesNotCall) {
  constexpr int kLate = kRanks - 1;
  Form(kRanks);
  ExpectSums();
  client::ConnectionOptions connection;
  connection.address = coordinator_.address();
  const auto admin = client::AdminClient::Create(*client::Connection::Create(connection));
  const auto call = [&](int rank) {
    Group& group = *groups_[static_cast<size_t>(rank)];
    const absl::StatusOr<Tensor> tensor = Ranks(group, group.device());
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(group.AllReduce(*tensor, *tensor, kSum), absl::OkStatus()) << "rank " << rank;
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kLate; ++rank) ranks.emplace_back(call, rank);
  std::string last;
  EXPECT_TRUE(Eventually([&] {
    const auto report = admin->WhoIsMissing("devices", absl::Seconds(2));
    if (!report.ok()) {
      last = report.status().ToString();
      return false;
    }
    last.clear();
    for (const client::TensorWait& wait : report->tensor_waits) {
      absl::StrAppend(&last, wait.operation, ": ", client::ToString(wait.missing), "; ");
      const auto& missing = wait.missing.missing;
      if (missing.size() == 1 && missing[0].first == kLate && missing[0].last == kLate &&
          wait.missing.arrived_count == kLate && report->unanswered.empty()) {
        return true;
      }
    }
    return false;
  })) << "the last answer: "
      << last;
  call(kLate);
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(Eventually([&] {
    const auto report = admin->WhoIsMissing("devices", absl::Seconds(2));
    return report.ok() && report->tensor_waits.empty();
  }));
}

TEST_F(DeviceTest, PartsOthersMemoryAndNothing) {
  Form(kRanks);
  ExpectOk(OnRanks(groups_, [](Group& group) -> absl::Status {
    const int rank = group.rank();
    // From a part of a tensor that the worker knows, into memory that it does not know.
    const absl::StatusOr<Tensor> whole = group.Allocate(DataType::kF32, {4, 6}, group.device());
    CudaGpu gpu(DeviceOf(rank));
    const absl::StatusOr<Tensor> all = gpu.Allocate(DataType::kF32, {4, 3 * kRanks});
    if (!whole.ok() || !all.ok()) return absl::InternalError("no memory");
    Fill(*whole, static_cast<float>(rank));
    const absl::StatusOr<Tensor> part = whole->Narrow(1, 2, 3);
    absl::Status status = group.AllGather(*part, *all, 1);
    if (!status.ok()) return status;
    const std::vector<float> values = Read(*all);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], static_cast<float>(i % (3 * kRanks) / 3)) << i;
    }
    // Backwards, so that the first element is not where the memory begins.
    const Tensor reversed = Tensor::Strided(static_cast<float*>(all->data()) + 2, DataType::kF32,
                                            {3}, {-1}, all->owner(), all->device());
    status = group.Broadcast(reversed, kRanks - 1);
    if (!status.ok()) return status;
    const absl::StatusOr<Tensor> none = group.Allocate(DataType::kF32, {0, 2}, group.device());
    if (!none.ok()) return none.status();
    status = group.AllReduce(*none, *none, kSum);
    if (!status.ok()) return status;
    // Messages, one of them empty.
    const int next = (rank + 1) % kRanks;
    const int previous = (rank + kRanks - 1) % kRanks;
    return group.Exchange({{true, next, *part},
                           {true, next, *none},
                           {false, previous, *whole->Narrow(1, 0, 3)},
                           {false, previous, *none}});
  }));
}

TEST_F(DeviceTest, OnStreamsNothingIsWaitedFor) {
  Form(kRanks);
  ExpectOk(OnRanks(groups_, [](Group& group) -> absl::Status {
    const absl::StatusOr<worker::cuda::Stream> stream =
        worker::cuda::Stream::Create(group.device().index());
    if (!stream.ok()) return stream.status();
    const absl::StatusOr<Tensor> tensor = Ranks(group, group.device());
    const absl::StatusOr<Tensor> all = group.Allocate(DataType::kF32, {5 * kRanks}, group.device());
    if (!tensor.ok() || !all.ok()) return absl::InternalError("no memory");
    CallOptions options;
    options.stream = stream->get();
    for (int round = 0; round < 3; ++round) {
      Fill(*tensor, static_cast<float>(group.rank() + 1));
      Fill(*all, -1);
      StreamGate gate;
      EXPECT_EQ(gate.Close(stream->get()), cudaSuccess);
      absl::Status status = group.AllReduce(*tensor, *tensor, kSum, options);
      if (status.ok()) status = group.AllGather(*tensor, *all, 0, options);
      if (!status.ok()) return status;
      EXPECT_EQ(Read(*all)[0], -1);
      CallOptions hasty;
      hasty.timeout = absl::Milliseconds(20);
      EXPECT_EQ(group.AwaitStreams(hasty).code(), absl::StatusCode::kDeadlineExceeded);
      gate.Open();
      // The caller's own stream waits for the worker's.
      status = worker::cuda::Synchronize(stream->get(), Soon());
      if (!status.ok()) return status;
      EXPECT_EQ(Read(*all), std::vector<float>(5 * kRanks, kSumOfRanks));
    }
    return group.AwaitStreams();
  }));
  ExpectSums();
}

// One stream is busy and the other idle: the idle stream's call keeps its place in the order.
TEST_F(DeviceTest, CallsOnTwoStreamsKeepTheirOrder) {
  Form(kRanks);
  ExpectOk(OnRanks(groups_, [](Group& group) -> absl::Status {
    const absl::StatusOr<worker::cuda::Stream> busy =
        worker::cuda::Stream::Create(group.device().index());
    const absl::StatusOr<worker::cuda::Stream> idle =
        worker::cuda::Stream::Create(group.device().index());
    const absl::StatusOr<Tensor> later = Ranks(group, group.device());
    const absl::StatusOr<Tensor> tensor = group.Allocate(DataType::kF32, {5}, group.device());
    const absl::StatusOr<Tensor> other = group.Allocate(DataType::kF32, {5}, group.device());
    if (!busy.ok() || !idle.ok() || !later.ok() || !tensor.ok() || !other.ok()) {
      return absl::InternalError("no streams or memory");
    }
    Fill(*tensor, -1);
    Fill(*other, 1);
    StreamGate gate;
    EXPECT_EQ(gate.Close(busy->get()), cudaSuccess);
    absl::Status status = worker::cuda::Copy(tensor->data(), later->data(),
                                             static_cast<size_t>(later->bytes()), busy->get());
    CallOptions options;
    for (const auto& [stream, input] :
         {std::make_pair(busy->get(), *tensor), std::make_pair(idle->get(), *other),
          std::make_pair(busy->get(), *other)}) {
      options.stream = stream;
      status.Update(group.AllReduce(input, input, kSum, options));
    }
    if (!status.ok()) return status;
    CallOptions hasty;
    hasty.timeout = absl::Milliseconds(20);
    EXPECT_EQ(group.AwaitStreams(hasty).code(), absl::StatusCode::kDeadlineExceeded);
    gate.Open();
    status = worker::cuda::Synchronize(busy->get(), Soon());
    status.Update(worker::cuda::Synchronize(idle->get(), Soon()));
    EXPECT_EQ(Read(*tensor), std::vector<float>(5, kSumOfRanks));
    EXPECT_EQ(Read(*other), std::vector<float>(5, kRanks * kRanks));
    return status;
  }));
}

TEST_F(DeviceTest, SequencesAreReplayed) {
  Form(kRanks);
  ExpectOk(OnRanks(groups_, [](Group& group) -> absl::Status {
    const absl::StatusOr<Tensor> tensor = Ranks(group, group.device());
    if (!tensor.ok()) return tensor.status();
    absl::StatusOr<std::unique_ptr<client::Sequence>> sequence =
        group.Record([&](Group& recorded) { return recorded.AllReduce(*tensor, *tensor, kSum); });
    if (!sequence.ok()) return sequence.status();
    for (float expected = kSumOfRanks; expected < 100; expected *= kRanks) {
      const absl::Status status = (*sequence)->Replay({});
      if (!status.ok()) return status;
      EXPECT_EQ(Read(*tensor)[0], expected);
    }
    return absl::OkStatus();
  }));
}

TEST_F(DeviceTest, ErrorsDescribeImpossibleCalls) {
  client::RemoteGroupOptions rank_options = RankOptions(0, 1, "alone");
  rank_options.gpu = nullptr;
  EXPECT_THAT(client::RemoteGroup::Create(rank_options).status().ToString(), HasSubstr("no GPU"));
  Form(1);
  Group& group = *groups_[0];
  const absl::StatusOr<worker::cuda::Stream> stream = worker::cuda::Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  CallOptions options;
  options.stream = stream->get();
  // The worker maps this memory only for one call.
  CudaGpu gpu(0);
  const absl::StatusOr<Tensor> foreign = gpu.Allocate(DataType::kF32, {3});
  ASSERT_TRUE(foreign.ok());
  EXPECT_TRUE(group.AllReduce(*foreign, *foreign, kSum).ok());
  const absl::Status refused = group.AllReduce(*foreign, *foreign, kSum, options);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.ToString(), HasSubstr("not of Allocate"));
  // Memory of another device, and host memory on a stream.
  const Tensor elsewhere(foreign->data(), DataType::kF32, {3}, nullptr, Device::Cuda(1));
  EXPECT_TRUE(absl::IsInvalidArgument(group.AllReduce(elsewhere, elsewhere, kSum)));
  const Tensor host = Tensor::Zeros(DataType::kF32, {3});
  EXPECT_TRUE(absl::IsInvalidArgument(group.AllReduce(host, host, kSum, options)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(group.Allocate(DataType::kF32, {3}, Device::Cuda(1)).status()));
  ExpectSums();
}

TEST_F(DeviceTest, FalseClaimsOfAClientAreRejected) {
  Form(1);
  client::WorkerSessionImpl& session = client::WorkerSessionImpl::Of(*sessions_[0]);
  const absl::StatusOr<Tensor> tensor = Ranks(*groups_[0], groups_[0]->device());
  ASSERT_TRUE(tensor.ok());
  const auto location = session.device_tensors().Find(*tensor);
  ASSERT_TRUE(location.has_value());
  // The daemon itself does not touch the GPU's memory.
  char byte = 0;
  EXPECT_TRUE(
      absl::IsInvalidArgument(session.WriteTensor(location->tensor, &byte, 1, testing::kTimeout)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(session.ReadTensor(location->tensor, &byte, 1, testing::kTimeout)));
  // An unknown device, and then a handle that is invalid or missing.
  v1::AttachRequest request;
  v1::RegisterDeviceMemory& memory = *request.mutable_register_device_memory();
  memory.set_device_uuid("GPU-unknown");
  memory.set_bytes(5);
  memory.set_legacy_handle("short");
  EXPECT_EQ(session.attached()->Ask(request, {}, Soon()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  memory.set_device_uuid(CudaGpu(0).Uuid().value());
  EXPECT_TRUE(absl::IsInvalidArgument(session.attached()->Ask(request, {}, Soon()).status()));
  memory.clear_legacy_handle();
  EXPECT_TRUE(absl::IsInvalidArgument(session.attached()->Ask(request, {}, Soon()).status()));
  // Invalid flags, and numbers that repeat or are too large.
  v1::RunCollectiveRequest call;
  call.set_group(static_cast<client::RemoteGroup&>(*groups_[0]).number());
  call.set_collective(v1::COLLECTIVE_ALL_REDUCE);
  call.set_in_place(true);
  call.set_reduce_op(static_cast<int>(ReduceOp::kSum));
  call.mutable_input()->set_tensor(location->tensor);
  call.mutable_input()->mutable_layout()->set_data_type(static_cast<int>(DataType::kF32));
  call.mutable_input()->mutable_layout()->add_shape(5);
  const auto run = [&](uint64_t flags, uint64_t number) {
    call.mutable_stream()->set_flags(flags);
    call.mutable_stream()->set_number(number);
    v1::RunCollectiveResponse response;
    return session.Call(&v1::WorkerService::Stub::RunCollective, call, testing::kTimeout,
                        &response);
  };
  const absl::StatusOr<Tensor> small = session.CreateTensor(DataType::kU8, {64});
  const absl::StatusOr<Tensor> flags = session.CreateTensor(DataType::kU8, {64 << 10});
  const absl::StatusOr<Tensor> others = session.CreateTensor(DataType::kU8, {64 << 10});
  ASSERT_TRUE(small.ok() && flags.ok() && others.ok());
  std::fill_n(static_cast<char*>(flags->data()), flags->bytes(), '\0');
  *static_cast<uint64_t*>(flags->data()) = 1;  // as if the client's stream had come there
  EXPECT_TRUE(absl::IsNotFound(run(12345, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(run(location->tensor, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(run(session.Find(*small)->tensor, 1)));
  EXPECT_EQ(run(session.Find(*flags)->tensor, 1), absl::OkStatus());
  for (const uint64_t number : {uint64_t{1}, uint64_t{1} << 62, ~uint64_t{0}}) {
    const absl::Status refused = run(session.Find(*flags)->tensor, number);
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("rank 0 of group ", groups_[0]->name(), ": call ", number)));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(run(session.Find(*others)->tensor, 2)));
  // Misaligned elements, which no device reads.
  CudaGpu gpu(0);
  absl::StatusOr<client::Gpu::Exported> odd =
      gpu.Export(static_cast<char*>(tensor->data()) + 1, 16);
  ASSERT_TRUE(odd.ok()) << odd.status();
  *request.mutable_register_device_memory() = client::ToProto(odd->memory);
  const int fd = odd->fd.get();
  const auto registered =
      session.attached()->Ask(request, absl::MakeConstSpan(&fd, odd->fd.is_open() ? 1 : 0), Soon());
  ASSERT_TRUE(registered.ok()) << registered.status();
  call.clear_stream();
  call.mutable_input()->set_tensor(registered->tensor());
  call.mutable_input()->mutable_layout()->set_shape(0, 2);
  v1::RunCollectiveResponse response;
  EXPECT_TRUE(absl::IsInvalidArgument(
      session.Call(&v1::WorkerService::Stub::RunCollective, call, testing::kTimeout, &response)));
  EXPECT_EQ(groups_[0]->AwaitStreams(), absl::OkStatus());
}

TEST_F(DeviceTest, AClientThatGoesLeavesNothingBehind) {
  Form(kRanks);
  const absl::StatusOr<worker::cuda::Stream> stream = worker::cuda::Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  {
    std::vector<Tensor> tensors;
    for (const auto& group : groups_) {
      tensors.push_back(Ranks(*group, group->device()).value());
    }
    StreamGate gate;
    ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
    CallOptions options;
    options.stream = stream->get();
    // The worker's stream waits for one that never comes.
    ASSERT_EQ(groups_[0]->AllReduce(tensors[0], tensors[0], kSum, options), absl::OkStatus());
    tensors.clear();
    gate.Open();
    groups_[0].reset();
  }
  groups_.clear();
  sessions_.clear();
  EXPECT_TRUE(AwaitAllEmpty());
  Form(kRanks, "next");
  ExpectSums();
}

TEST_F(DeviceTest, AWorkerThatIsKilledBehindItsGenerationHoldsNoStreamBack) {
  Form(1);
  const absl::StatusOr<worker::cuda::Stream> stream = worker::cuda::Stream::Create(0);
  const absl::StatusOr<Tensor> tensor = Ranks(*groups_[0], groups_[0]->device());
  ASSERT_TRUE(stream.ok() && tensor.ok());
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
  CallOptions options;
  options.stream = stream->get();
  ASSERT_EQ(groups_[0]->AllReduce(*tensor, *tensor, kSum, options), absl::OkStatus());
  groups_[0]->Abort(absl::AbortedError("it is over"));
  EXPECT_TRUE(
      Eventually([&] { return absl::IsAborted(groups_[0]->AllReduce(*tensor, *tensor, kSum)); }));
  worker(0).Kill();
  gate.Open();
  EXPECT_EQ(worker::cuda::Synchronize(stream->get(), Soon()), absl::OkStatus());
}

TEST_F(DeviceTest, AWorkerThatIsKilledHoldsNoStreamBack) {
  Form(1);
  const absl::StatusOr<worker::cuda::Stream> stream = worker::cuda::Stream::Create(0);
  const absl::StatusOr<Tensor> tensor = Ranks(*groups_[0], groups_[0]->device());
  ASSERT_TRUE(stream.ok() && tensor.ok());
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
  CallOptions options;
  options.stream = stream->get();
  ASSERT_EQ(groups_[0]->AllReduce(*tensor, *tensor, kSum, options), absl::OkStatus());
  worker(0).Kill();
  gate.Open();
  EXPECT_EQ(worker::cuda::Synchronize(stream->get(), Soon()), absl::OkStatus());
  const absl::Status status = groups_[0]->AllReduce(*tensor, *tensor, kSum, options);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("is gone"));
  EXPECT_THAT(status.ToString(), HasSubstr("devices"));
}

}  // namespace
}  // namespace cohort
