// A pipe, a device or a very large file takes the place of the access policy while clients call.
// The coordinator says why it keeps the old policy, answers all calls, and ends when it is asked
// to.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/flood_test_base.h"
#include "tests/failure/testing/limited_coordinator.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Bystanders;
using testing::kMiB;
using testing::kTimeout;
using testing::LimitedCoordinator;
using testing::Stubs;

constexpr int kCalls = 100;

class PolicyReplacedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The hash is that of the token "ci".
    std::ofstream(policy_)
        << R"({"rules": [{"identity": "anonymous", "tenant": "*", "role": "operator"},)"
        << R"({"identity": "token:ci", "tenant": "*", "role": "observer"}],)"
        << R"("tokens": [{"name": "ci", "sha256": ")"
        << "1b158839f8aa339e89bb50b1603e90ec68e0fd5565fe10a7cb32729fddf7070a"
        << R"("}]})";
    ASSERT_TRUE(coordinator_.Start({"--access-policy", policy_}).ok()) << coordinator_.ErrorText();
  }

  // The file at `next_` becomes the policy, which then cannot be used because of `why`.
  void ExpectOldPolicyStays(const std::string& why) {
    Stubs stubs(coordinator_.address());
    Bystanders bystanders(coordinator_.address());
    bystanders.AwaitCalls(kCalls);
    EXPECT_EQ(PutWithToken(stubs), grpc::StatusCode::PERMISSION_DENIED);
    const int64_t before = coordinator_.ResidentBytes();
    EXPECT_EQ(rename(next_.c_str(), policy_.c_str()), 0);
    const std::string line =
        absl::StrCat("the new access policy cannot be used: the old one stays why=\"access policy ",
                     policy_, ": ", why);
    EXPECT_TRUE(testing::Eventually([&] {
      return absl::StrContains(coordinator_.ErrorText(), line);
    })) << coordinator_.ErrorText();
    bystanders.AwaitCalls(kCalls);
    EXPECT_EQ(PutWithToken(stubs), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_LE(coordinator_.ResidentBytes() - before, 64 * kMiB);
    bystanders.Stop();
    const absl::StatusOr<int> exit = coordinator_.Terminate(kTimeout);
    ASSERT_TRUE(exit.ok()) << exit.status();
    EXPECT_EQ(*exit, 0);
  }

  const std::string folder_ = testing::NewFolder();
  const std::string policy_ = absl::StrCat(folder_, "/policy.json");
  const std::string next_ = absl::StrCat(folder_, "/next");

 private:
  static grpc::StatusCode PutWithToken(Stubs& stubs) {
    const std::unique_ptr<grpc::ClientContext> context = testing::Context();
    context->AddMetadata("authorization", "Bearer ci");
    v1::PutRequest request;
    request.set_key("key");
    v1::PutResponse response;
    return stubs.store->Put(context.get(), request, &response).error_code();
  }

  LimitedCoordinator coordinator_;
};

TEST_F(PolicyReplacedTest, ByAPipe) {
  ASSERT_EQ(mkfifo(next_.c_str(), 0600), 0);
  ExpectOldPolicyStays("is not a regular file");
}

TEST_F(PolicyReplacedTest, ByADeviceWithoutEnd) {
  ASSERT_EQ(symlink("/dev/zero", next_.c_str()), 0);
  ExpectOldPolicyStays("is not a regular file");
}

TEST_F(PolicyReplacedTest, ByAFileOfTwoGibibytes) {
  std::ofstream(next_).close();
  ASSERT_EQ(truncate(next_.c_str(), 2048 * kMiB), 0);
  ExpectOldPolicyStays("is larger than 16777216 bytes");
}

}  // namespace
}  // namespace cohort
