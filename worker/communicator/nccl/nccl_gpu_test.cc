// The conformance suite over the NCCL and the GPU of this machine, with one rank; skipped without.
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "worker/communicator/nccl/loaded_nccl_api.h"
#include "worker/communicator/nccl/nccl_clique.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/nccl/nccl_types.h"
#include "worker/communicator/nccl/testing/hosted.h"
#include "worker/communicator/single/single_communicator.h"
#include "worker/communicator/testing/conformance.h"
#include "worker/cuda/device.h"
#include "worker/cuda/pinned_memory.h"

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

Communicators Create(int size) {
  EXPECT_EQ(size, 1);
  NcclFormation formation;
  absl::StatusOr<std::shared_ptr<NcclApi>> nccl = LoadNccl();
  EXPECT_TRUE(nccl.ok()) << nccl.status();
  formation.nccl = *std::move(nccl);
  formation.compute_capability = ComputeCapability();
  absl::StatusOr<std::string> id = NewNcclId(*formation.nccl);
  EXPECT_TRUE(id.ok()) << id.status();
  formation.ids = {*std::move(id)};
  formation.name = "conformance";
  auto host = std::make_unique<SingleCommunicator>();
  formation.host = host.get();
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> formed =
      NcclCommunicator::Form(std::move(formation), ConformanceTest::Soon());
  EXPECT_TRUE(formed.ok()) << formed.status();
  Communicators ranks;
  ranks.push_back(std::make_unique<Hosted>(std::move(host), *std::move(formed)));
  return ranks;
}

std::vector<Backend> FindBackends() {
  const absl::StatusOr<int> devices = cuda::DeviceCount();
  if (!devices.ok()) {
    std::fprintf(stderr, "skipped: %s\n", std::string(devices.status().message()).c_str());
    return {};
  }
  Backend backend{"nccl", {1}, Create, new PinnedTestMemory()};
  backend.reduces = [](DataType type, ReduceOp op) {
    return ReductionFor(type, op, ComputeCapability()).ok();
  };
  backend.rounds_at_each_step = true;
  return {backend};
}

const std::vector<Backend>& Backends() {
  static const auto* const backends = new std::vector<Backend>(FindBackends());
  return *backends;
}

INSTANTIATE_TEST_SUITE_P(OneRank, ConformanceTest, ::testing::ValuesIn(Backends()));
// Without a GPU there is none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformanceTest);

}  // namespace
}  // namespace cohort::worker
