// How NCCL's communicator ends where no thread can start for that.
#include "worker/communicator/nccl/clique/nccl_clique.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/no_new_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

class NcclCliqueTest : public ::testing::Test {
 protected:
  NcclCliqueTest() {
    cuda::ResetFakeRuntime(cuda::FakeMachine());
    nccl_ = std::make_shared<FakeNcclApi>();
  }

  std::unique_ptr<NcclClique> FormAlone() {
    NcclCliqueOptions options;
    absl::StatusOr<std::string> id = NewNcclId(*nccl_);
    EXPECT_TRUE(id.ok()) << id.status();
    if (!id.ok()) return nullptr;
    options.ids = {*std::move(id)};
    options.name = "alone";
    absl::StatusOr<std::unique_ptr<NcclClique>> clique =
        NcclClique::Form(nccl_, options, Soon(), [] { return absl::OkStatus(); });
    EXPECT_TRUE(clique.ok()) << clique.status();
    return clique.ok() ? *std::move(clique) : nullptr;
  }
  // Less than a test may take, so that the failure says what did not happen.
  bool Eventually(const std::string& function) const {
    const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
    while (Clock::Steady().Now() < deadline) {
      const std::vector<std::string> called = nccl_->functions(0);
      if (std::find(called.begin(), called.end(), function) != called.end()) return true;
      std::this_thread::yield();
    }
    return false;
  }

  std::shared_ptr<FakeNcclApi> nccl_;
};

TEST_F(NcclCliqueTest, ARevokeWithoutAThreadIsMadeUpForByTheNext) {
  for (const auto wait : {NcclClique::Wait::kBriefly, NcclClique::Wait::kNot}) {
    nccl_ = std::make_shared<FakeNcclApi>();
    const std::unique_ptr<NcclClique> clique = FormAlone();
    ASSERT_NE(clique, nullptr);
    {
      const cohort::testing::NoNewThreads refuse;
      clique->Revoke(wait);
      EXPECT_THAT(nccl_->functions(0), Not(Contains("ncclCommRevoke")));
    }
    clique->Revoke(wait);
    EXPECT_TRUE(Eventually("ncclCommRevoke")) << "a hanging operation never ends";
  }
}

// NCCL was not told to let the memory go.
TEST_F(NcclCliqueTest, AnEndWithoutAThreadLeavesTheCommunicatorAndItsMemory) {
  std::unique_ptr<NcclClique> clique = FormAlone();
  ASSERT_NE(clique, nullptr);
  absl::StatusOr<std::shared_ptr<NcclMemory>> memory =
      NcclMemory::Allocate(nccl_, 0, 4096, Soon());
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::weak_ptr<NcclMemory> held = *memory;
  const absl::Status registered = clique->Register(*std::move(memory), false, Soon(),
                                                   [] { return absl::OkStatus(); });
  ASSERT_TRUE(registered.ok()) << registered;
  memory = absl::UnknownError("moved");
  {
    const cohort::testing::NoNewThreads refuse;
    clique.reset();
  }
  EXPECT_FALSE(held.expired()) << "freed while NCCL has it";
  EXPECT_THAT(nccl_->leaks(), Contains("communicator of rank 0"));
}

}  // namespace
}  // namespace cohort::worker
