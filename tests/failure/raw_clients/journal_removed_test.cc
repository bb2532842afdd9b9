// The journal's file is removed while the coordinator runs. The next write is not acknowledged, and
// the process ends by itself with exit code 3, as for a full disk.
#include <unistd.h>

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Stubs;

grpc::Status Put(Stubs& stubs, const std::string& key) {
  const std::unique_ptr<grpc::ClientContext> context = testing::Context();
  v1::PutRequest request;
  request.set_key(key);
  request.set_value("value");
  v1::PutResponse response;
  return stubs.store->Put(context.get(), request, &response);
}

TEST(JournalRemovedTest, EndsTheCoordinatorWithTheJournalsExitCode) {
  const std::string path = testing::NewFolder() + "/journal";
  CoordinatorProcess::Options options;
  options.flags = {"--journal", "sqlite", "--journal-path", path, "--drain-grace", "1s"};
  CoordinatorProcess coordinator(options);
  ASSERT_TRUE(coordinator.Start().ok());
  Stubs stubs(coordinator.address());
  const grpc::Status before = Put(stubs, "before");
  ASSERT_TRUE(before.ok()) << before.error_message();

  ASSERT_EQ(unlink(path.c_str()), 0);
  const grpc::Status during = Put(stubs, "during");
  EXPECT_EQ(during.error_code(), grpc::StatusCode::UNAVAILABLE) << during.error_message();
  EXPECT_THAT(during.error_message(), HasSubstr(path + " was removed or moved"));

  const absl::StatusOr<int> exit = coordinator.Wait(kTimeout);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(*exit, 3);
}

}  // namespace
}  // namespace cohort
