// The conformance suite over the NCCL and the GPU of this machine, with one rank, and what the
// suite does not have; skipped without.
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "worker/communicator/nccl/api/loaded_nccl_api.h"
#include "worker/communicator/nccl/api/nccl_types.h"
#include "worker/communicator/nccl/clique/nccl_clique.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/nccl/testing/communicator_with_host.h"
#include "worker/communicator/single/single_communicator.h"
#include "worker/communicator/testing/conformance.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/pinned_memory.h"

namespace cohort::worker {
namespace {

// Memory of the host that devices reach: the suite reads and writes it as if it were its own.
class PinnedTestMemory final : public TestMemory {
 public:
  void* Allocate(size_t bytes) override {
    absl::StatusOr<cuda::PinnedMemory> memory = cuda::PinnedMemory::Allocate(bytes > 0 ? bytes : 1);
    EXPECT_TRUE(memory.ok()) << memory.status();
    void* const data = memory->data();
    const std::lock_guard<std::mutex> lock(mutex_);
    pieces_.emplace(data, *std::move(memory));
    return data;
  }
  bool Free(void* memory) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pieces_.erase(memory) > 0;
  }

 private:
  std::mutex mutex_;
  std::map<void*, cuda::PinnedMemory> pieces_;
};

int ComputeCapability() {
  static const int capability = [] {
    const absl::StatusOr<cuda::DeviceInfo> device = cuda::DescribeDevice(0);
    if (!device.ok()) return 0;
    return device->compute_capability.first * 10 + device->compute_capability.second;
  }();
  return capability;
}

// One rank, on the first device.
std::unique_ptr<NcclCommunicator> FormAlone(Communicator* host) {
  NcclCommunicatorInit init;
  absl::StatusOr<std::shared_ptr<NcclApi>> nccl = LoadNccl();
  EXPECT_TRUE(nccl.ok()) << nccl.status();
  init.nccl = *std::move(nccl);
  init.compute_capability = ComputeCapability();
  absl::StatusOr<std::string> id = NewNcclId(*init.nccl);
  EXPECT_TRUE(id.ok()) << id.status();
  init.ids = {*std::move(id)};
  init.name = "conformance";
  init.host = host;
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> formed =
      NcclCommunicator::Form(std::move(init), ConformanceTest::Soon());
  EXPECT_TRUE(formed.ok()) << formed.status();
  return *std::move(formed);
}

Communicators Create(int size) {
  EXPECT_EQ(size, 1);
  auto host = std::make_unique<SingleCommunicator>();
  std::unique_ptr<NcclCommunicator> formed = FormAlone(host.get());
  Communicators ranks;
  ranks.push_back(std::make_unique<CommunicatorWithHost>(std::move(host), std::move(formed)));
  return ranks;
}

std::vector<Backend> FindBackends() {
  const absl::StatusOr<int> devices = cuda::DeviceCount();
  if (!devices.ok()) {
    std::fprintf(stderr, "skipped: %s\n", std::string(devices.status().message()).c_str());
    return {};
  }
  Backend backend{"nccl", {1}, Create, new PinnedTestMemory()};
  backend.reduces = [](DataType type, ReduceOp op, int ranks) {
    return ReductionFor(type, op, ComputeCapability(), ranks).ok();
  };
  backend.rounds_at_each_step = true;
  backend.outlives_leavers = false;
  return {backend};
}

const std::vector<Backend>& Backends() {
  static const auto* const backends = new std::vector<Backend>(FindBackends());
  return *backends;
}

INSTANTIATE_TEST_SUITE_P(OneRank, ConformanceTest, ::testing::ValuesIn(Backends()));
// Without a GPU the suite has no instances.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformanceTest);

// They run after the work that is on the stream, and before later work, in registered memory.
TEST(NcclGpuTest, OperationsOnAStreamOfTheCaller) {
  if (!cuda::DeviceCount().ok()) GTEST_SKIP() << "no GPU";
  SingleCommunicator host;
  const std::unique_ptr<NcclCommunicator> group = FormAlone(&host);
  const absl::StatusOr<cuda::Stream> stream = cuda::Stream::Create(0);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto memory = group->Allocate(1 << 20, ConformanceTest::Soon());
  ASSERT_TRUE(memory.ok()) << memory.status();
  absl::StatusOr<cuda::PinnedMemory> pinned = cuda::PinnedMemory::Allocate(sizeof(float));
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  auto* const number = static_cast<float*>(static_cast<void*>(pinned->data()));
  *number = 3;
  auto* const on_device = reinterpret_cast<float*>((*memory)->data());
  FlatCall operation;
  operation.collective = Collective::kAllReduce;
  operation.count = 1;
  operation.type = DataType::kF32;
  operation.reduction = {ReduceOp::kPreMulSum, 0.5};
  NcclCallOptions options;
  options.stream = stream->get();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cuda::Copy(on_device, number, sizeof(float), stream->get()), absl::OkStatus());
    const absl::Status enqueued =
        group->Enqueue(operation, on_device, on_device, options, ConformanceTest::Soon());
    ASSERT_TRUE(enqueued.ok()) << enqueued;
    ASSERT_EQ(cuda::Copy(number, on_device, sizeof(float), stream->get()), absl::OkStatus());
    ASSERT_EQ(cuda::Synchronize(stream->get(), ConformanceTest::Soon()), absl::OkStatus());
  }
  EXPECT_EQ(*number, 3 * 0.125F);
  EXPECT_EQ(group->Await(ConformanceTest::Soon()), absl::OkStatus());
  EXPECT_EQ(group->Deregister(**memory, ConformanceTest::Soon()), absl::OkStatus());
  EXPECT_EQ(group->Check(), absl::OkStatus());
}

}  // namespace
}  // namespace cohort::worker
