#include "tests/parallel/testing/parallel_test_base.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/collective/remote/remote_group_factory.h"
#include "tests/failure/testing/members.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/attached_group_factory.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/local_group_factory.h"

namespace cohort::testing {
namespace {

// One for all ranks of this process, as of one machine.
std::shared_ptr<worker::FakeNcclApi>& Nccl() {
  static auto* const nccl =
      new std::shared_ptr<worker::FakeNcclApi>(std::make_shared<worker::FakeNcclApi>());
  return *nccl;
}

}  // namespace

std::string NameOf(Form form) {
  switch (form) {
    case Form::kLocal:
      return "Local";
    case Form::kDaemon:
      return "Daemon";
    case Form::kAttached:
      return "Attached";
    case Form::kDevice:
      return "Device";
  }
  return "Unknown";
}

std::string FormName(const ::testing::TestParamInfo<Form>& info) { return NameOf(info.param); }

void ParallelTest::SetUp() {
  WorkerTest::SetUp();
  if (GetParam() == Form::kDevice) {
    worker::cuda::FakeMachine machine;
    machine.devices = kMostRanks;
    machine.peer_access = true;
    worker::cuda::ResetFakeRuntime(machine);
    Nccl() = std::make_shared<worker::FakeNcclApi>();
  }
  if (GetParam() == Form::kDaemon || GetParam() == Form::kAttached) {
    StartWorker();
    for (int rank = 0; rank < kMostRanks; ++rank) sessions_.push_back(Connect(0, Transport::kUnix));
  }
}

void ParallelTest::TearDown() {
  groups_.clear();
  sessions_.clear();
}

client::GroupFactory ParallelTest::FactoryOf(int rank, absl::Duration timeout) {
  const Form form = GetParam();
  if (form == Form::kDaemon || form == Form::kAttached) {
    client::RemoteGroupOptions rank_options =
        GroupOptionsOf(sessions_[static_cast<size_t>(rank)], "", 0, 0);
    rank_options.timeout = timeout;
    return form == Form::kAttached ? worker::AttachedGroupFactory(rank_options)
                                   : client::RemoteGroupFactory(rank_options);
  }
  worker::LocalGroupOptions options;
  options.membership.connection.address = coordinator_.address();
  options.timeout = timeout;
  if (form == Form::kDevice) {
    options.bootstrap.placement = Placement::kBoth;
    options.gpu_context = std::make_shared<worker::CudaGpuContext>(Nccl(), rank);
  }
  return worker::LocalGroupFactory(options);
}

absl::StatusOr<std::unique_ptr<client::Group>> ParallelTest::Join(const std::string& name, int rank,
                                                                  int size,
                                                                  absl::Duration timeout) {
  client::PlannedRank place;
  place.name = name;
  place.rank = rank;
  place.world_size = size;
  place.timeout = kTimeout;
  return FactoryOf(rank, timeout)(place);
}

void ParallelTest::MakeGroup(int size, absl::Duration timeout) {
  groups_.clear();
  Groups groups(static_cast<size_t>(size));
  const std::string name = absl::StrCat("parallel-", made_++);
  OnThreads(size, [&](int rank) {
    absl::StatusOr<std::unique_ptr<client::Group>> group = Join(name, rank, size, timeout);
    EXPECT_TRUE(group.ok()) << "rank " << rank << ": " << group.status();
    if (group.ok()) groups[static_cast<size_t>(rank)] = *std::move(group);
  });
  for (const auto& group : groups) ASSERT_NE(group, nullptr);
  groups_ = std::move(groups);
}

std::vector<absl::Status> ParallelTest::OnRanks(
    const std::function<absl::Status(client::Group&)>& body) {
  return WorkerTest::OnRanks(groups_, body);
}

Tensor ParallelTest::Touchable(const Tensor& tensor) {
  return Tensor::Strided(tensor.data(), tensor.type(), tensor.shape(), tensor.strides(),
                         tensor.owner());
}

Tensor ParallelTest::Upload(client::Group& group, const Tensor& host) {
  const Device device = GetParam() == Form::kDevice ? group.device() : Device::Host();
  absl::StatusOr<Tensor> tensor = group.Allocate(host.type(), host.shape(), device);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  if (!tensor.ok()) return Tensor();
  const absl::Status copied = CopyTensor(host, Touchable(*tensor));
  EXPECT_TRUE(copied.ok()) << copied;
  return *std::move(tensor);
}

Tensor ParallelTest::Download(client::Group& /*group*/, const Tensor& tensor) {
  const Tensor host = Tensor::Uninitialized(tensor.type(), tensor.shape());
  const absl::Status copied = CopyTensor(Touchable(tensor), host);
  EXPECT_TRUE(copied.ok()) << copied;
  return host;
}

}  // namespace cohort::testing
