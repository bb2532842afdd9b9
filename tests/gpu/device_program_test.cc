// The device operations of one rank, on the fake CUDA and the fake NCCL: a group of one.
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

using ::testing::StartsWith;

constexpr char kProgram[] = "worker/group/testing/rank_program/rank_program_on_fakes";

class DeviceProgramTest : public ::testing::Test {
 protected:
  std::string Ask(const std::string& command) {
    process_->WriteLine(command);
    return Line();
  }
  std::string Line() {
    return process_->ReadLine(kTimeout).value_or(absl::StrCat("nothing: ", process_->ErrorText()));
  }

  CoordinatorProcess coordinator_{{}};
  std::unique_ptr<ChildProcess> process_;
};

TEST_F(DeviceProgramTest, GoesThroughTheTableAndFormsAgain) {
  ASSERT_TRUE(coordinator_.Start().ok());
  process_ = std::make_unique<ChildProcess>(std::vector<std::string>{
      kProgram, "--backend", "device", "--coordinator", coordinator_.address(), "--group", "one"});
  ASSERT_EQ(Line(), "joined 0 1 1");
  EXPECT_THAT(Ask(absl::StrCat("table ", static_cast<uint32_t>(TestSeed()))), StartsWith("OK "));
  EXPECT_THAT(Ask("rejoin"), "OK 0 1 2");
  EXPECT_THAT(Ask("sum"), StartsWith("OK "));
  EXPECT_THAT(Ask("replay"), StartsWith("OK "));
  EXPECT_THAT(Ask("nothing"), StartsWith("INVALID_ARGUMENT"));
  process_->WriteLine("leave");
  EXPECT_EQ(process_->Wait(kTimeout).value_or(-1), 0);
}

TEST_F(DeviceProgramTest, AProbeSaysThatThereIsADevice) {
  process_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{kProgram, "--backend", "device", "--probe"});
  EXPECT_EQ(Line(), "OK device");
  EXPECT_EQ(process_->Wait(kTimeout).value_or(-1), 0);
}

// The program ends at its limit, whatever it waits for and whether or not its parent still watches
// it.
TEST_F(DeviceProgramTest, EndsByItselfAtItsLimit) {
  ASSERT_TRUE(coordinator_.Start().ok());
  process_ = std::make_unique<ChildProcess>(std::vector<std::string>{
      kProgram, "--backend", "device", "--coordinator", coordinator_.address(), "--group", "two",
      "--ranks", "2", "--limit-s", "1"});
  EXPECT_EQ(process_->Wait(kTimeout).value_or(-1), 128 + SIGALRM);
}

}  // namespace
}  // namespace cohort::testing
