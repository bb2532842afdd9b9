#include "tests/benchmark/gpu/torch_implementation.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::benchmark {
namespace {

using ::testing::HasSubstr;

TEST(TorchImplementationTest, AsksAndUnderstands) {
  const auto implementation = MakeTorchImplementation(
      {"/bin/sh", testing::ProgramPath("tests/benchmark/gpu/testing/torch_stub.sh")},
      TorchBackend::kNccl, 64);
  ASSERT_TRUE(implementation.ok()) << implementation.status();
  DeviceImplementation& torch = **implementation;
  EXPECT_EQ(torch.name(), "torch");
  EXPECT_EQ(torch.Prepare(Collective::kAllReduce, 64), absl::OkStatus());
  EXPECT_THAT(std::string(torch.Prepare(Collective::kBroadcast, 64).message()),
              HasSubstr("no such operation"));
  EXPECT_EQ(torch.RunBlocking(3).value(), absl::Milliseconds(500));
  EXPECT_EQ(torch.RunQueued(3)->enqueued, absl::Milliseconds(125));
  EXPECT_EQ(torch.RunQueued(3)->done, absl::Milliseconds(250));
  EXPECT_TRUE(absl::IsUnavailable(torch.Verify())) << "it has ended";
}

TEST(TorchImplementationTest, AnImplementationThatDoesNotStartIsUnavailable) {
  EXPECT_TRUE(absl::IsUnavailable(
      MakeTorchImplementation({"/bin/false", ""}, TorchBackend::kCohort, 64).status()));
}

}  // namespace
}  // namespace cohort::benchmark
