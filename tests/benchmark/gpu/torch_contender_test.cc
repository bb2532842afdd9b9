#include "tests/benchmark/gpu/torch_contender.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::benchmark {
namespace {

using ::testing::HasSubstr;

TEST(TorchContenderTest, AsksAndUnderstands) {
  const auto contender = MakeTorchContender(
      {"/bin/sh", testing::ProgramPath("tests/benchmark/gpu/testing/torch_stub.sh")}, 64);
  ASSERT_TRUE(contender.ok()) << contender.status();
  DeviceContender& torch = **contender;
  EXPECT_EQ(torch.name(), "torch");
  EXPECT_EQ(torch.Prepare(Collective::kAllReduce, 64), absl::OkStatus());
  EXPECT_THAT(std::string(torch.Prepare(Collective::kBroadcast, 64).message()),
              HasSubstr("no such operation"));
  EXPECT_EQ(torch.RunBlocking(3).value(), absl::Milliseconds(500));
  EXPECT_EQ(torch.RunQueued(3)->enqueued, absl::Milliseconds(125));
  EXPECT_EQ(torch.RunQueued(3)->done, absl::Milliseconds(250));
  EXPECT_TRUE(absl::IsUnavailable(torch.Verify())) << "it has ended";
}

TEST(TorchContenderTest, AContenderThatDoesNotStartIsUnavailable) {
  EXPECT_TRUE(absl::IsUnavailable(MakeTorchContender({"/bin/false", ""}, 64).status()));
}

}  // namespace
}  // namespace cohort::benchmark
