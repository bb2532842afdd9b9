// The conformance suite over the fake NCCL: data moves, on streams that are threads.
#include <string>
#include <utility>
#include <vector>

#include "worker/communicator/nccl/api/nccl_types.h"
#include "worker/communicator/nccl/testing/communicator_with_host.h"
#include "worker/communicator/nccl/testing/nccl_ranks.h"
#include "worker/communicator/testing/conformance.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {
namespace {

constexpr int kMostRanks = 8;

// One for all groups of the test.
const std::shared_ptr<FakeNcclApi>& Nccl() {
  static const auto* const nccl = new std::shared_ptr<FakeNcclApi>([] {
    cuda::FakeMachine machine;
    machine.devices = kMostRanks;
    cuda::ResetFakeRuntime(machine);
    return std::make_shared<FakeNcclApi>();
  }());
  return *nccl;
}

Communicators Create(int size) {
  Communicators ranks;
  for (NcclRank& formed : FormNcclRanks(Nccl(), size, ConformanceTest::Soon())) {
    EXPECT_TRUE(formed.nccl.ok()) << formed.nccl.status();
    ranks.push_back(
        std::make_unique<CommunicatorWithHost>(std::move(formed.host), *std::move(formed.nccl)));
  }
  return ranks;
}

Backend Fake() {
  Backend backend{"fake", {1, 2, 3, 5, kMostRanks}, Create};
  backend.reduces = [](DataType type, ReduceOp op, int ranks) {
    return ReductionFor(type, op, kFakeComputeCapability, ranks).ok();
  };
  backend.uses_control = true;
  backend.rounds_at_each_step = true;
  backend.outlives_leavers = false;
  return backend;
}

INSTANTIATE_TEST_SUITE_P(Nccl, ConformanceTest, ::testing::Values(Fake()));

// When all groups are gone.
class NothingLeft : public ::testing::Environment {
 public:
  void TearDown() override {
    EXPECT_EQ(Nccl()->misuses(), std::vector<std::string>());
    EXPECT_EQ(Nccl()->leaks(), std::vector<std::string>());
    EXPECT_EQ(cuda::AliveInFakeRuntime(), "");
  }
};
const auto* const kNothingLeft = ::testing::AddGlobalTestEnvironment(new NothingLeft);

}  // namespace
}  // namespace cohort::worker
