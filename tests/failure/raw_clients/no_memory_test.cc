// An allocation fails for one request: only that request gets an error, which names the operation
// and the size, and the process goes on serving. The processes are real, and the test limits their
// data segments while they run.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using framed_rpc::TestClient;
using ::testing::AllOf;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::Stubs;

constexpr char kPut[] = "cohort.v1.StoreService/Put";
// A request or a value of this size does not fit; half of it does, and so does all else.
constexpr int64_t kLarge = 24 << 20;

int64_t DataBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t total = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  file >> total >> resident >> shared >> text >> library >> data;
  return data * sysconf(_SC_PAGESIZE);
}

// `room` more than the process has now; negative: no limit.
void LimitData(pid_t pid, int64_t room) {
  rlimit limit;
  ASSERT_EQ(prlimit(pid, RLIMIT_DATA, nullptr, &limit), 0);
  limit.rlim_cur = room < 0 ? limit.rlim_max : static_cast<rlim_t>(DataBytes(pid) + room);
  ASSERT_EQ(prlimit(pid, RLIMIT_DATA, &limit, nullptr), 0);
}

v1::PutRequest PutOf(int64_t bytes) {
  v1::PutRequest request;
  request.set_key("key");
  request.set_value(std::string(static_cast<size_t>(bytes), 'x'));
  return request;
}

class NoMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CoordinatorProcess::Options options;
    options.flags = {"--max-message-bytes", "67108864", "--limit", "max_value_bytes=33554432"};
    // One heap; large values are mapped outside of it, so that freed memory cannot hold the next.
    options.environment = {"MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=131072"};
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    ASSERT_TRUE(coordinator_->Start().ok());
    stubs_ = std::make_unique<Stubs>(coordinator_->address());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Put(1).ok());
  }
  grpc::Status Put(int64_t bytes) {
    v1::PutResponse response;
    return stubs_->store->Put(testing::Context().get(), PutOf(bytes), &response);
  }

  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::unique_ptr<Stubs> stubs_;
};

// gRPC does not survive a failure of its own allocations, so the requests are small, and the value
// is large.
TEST_F(NoMemoryTest, ByGrpc) {
  // An answer shares large values, and has copies of small ones.
  constexpr int kSmallValues = 1000;
  constexpr int64_t kSmall = 1000;
  const std::string part(kLarge / 24, 'x');
  const auto append = [&](const std::string& bytes) {
    v1::AppendRequest request;
    request.set_key("large");
    request.set_value(bytes);
    v1::AppendResponse response;
    return stubs_->store->Append(testing::Context().get(), request, &response);
  };
  const auto range = [&](const std::string& prefix) {
    v1::RangeRequest request;
    request.set_prefix(prefix);
    request.set_page_size(kSmallValues);
    v1::RangeResponse response;
    return stubs_->store->Range(testing::Context().get(), request, &response);
  };
  for (int i = 0; i < 24; ++i) {
    const grpc::Status status = append(part);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  for (int i = 0; i < kSmallValues; ++i) {
    v1::PutRequest request = PutOf(kSmall);
    request.set_key(absl::StrCat("small", i));
    v1::PutResponse response;
    ASSERT_TRUE(stubs_->store->Put(testing::Context().get(), request, &response).ok());
  }
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), kLarge / 2));
  const grpc::Status append_status = append("x");
  EXPECT_EQ(append_status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(
      append_status.error_message(),
      absl::StrCat("cohort.v1.StoreService/Append: the process has no memory left for a value "
                   "of ",
                   kLarge + 1, " bytes"));
  EXPECT_TRUE(range("large").ok());
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), kSmallValues * kSmall / 2));
  const grpc::Status range_status = range("small");
  EXPECT_EQ(range_status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(
      range_status.error_message(),
      absl::StrCat("cohort.v1.StoreService/Range: the process has no memory left for an answer "
                   "of ",
                   kSmallValues * kSmall, " bytes"));
  const grpc::Status small = Put(1000);
  EXPECT_TRUE(small.ok()) << small.error_message();
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), -1));
  EXPECT_TRUE(append("x").ok());
  EXPECT_TRUE(range("small").ok());
  // Every call has ended, so the coordinator need not wait for one.
  EXPECT_EQ(coordinator_->Terminate(absl::Seconds(20)).value_or(-1), 0);
}

// gRPC has room for the request's bytes, but the coordinator has no room for its value.
TEST_F(NoMemoryTest, ALargeRequestByGrpc) {
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), kLarge + kLarge * 3 / 4));
  const grpc::Status large = Put(kLarge);
  EXPECT_EQ(large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(large.error_message(),
            absl::StrCat("cohort.v1.StoreService/Put: the process has no memory left for a request "
                         "of ",
                         PutOf(kLarge).ByteSizeLong(), " bytes"));
  const grpc::Status small = Put(1000);
  EXPECT_TRUE(small.ok()) << small.error_message();
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), -1));
  EXPECT_TRUE(Put(kLarge).ok());
}

TEST_F(NoMemoryTest, ByFrames) {
  TestClient client(coordinator_->address());
  client.Greet();
  client.Call(1, kPut, PutOf(1));
  ASSERT_EQ(client.Next()->code(), absl::StatusCode::kOk);
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), kLarge / 2));
  client.Call(2, kPut, PutOf(kLarge));
  const auto refused = client.Next();
  ASSERT_TRUE(refused.has_value()) << "the connection ended";
  EXPECT_EQ(refused->header.call, 2u);
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted) << refused->text();
  EXPECT_THAT(refused->text(),
              AllOf(HasSubstr(absl::StrCat(kPut, ": the process has no memory left for a request")),
                    HasSubstr(absl::StrCat(PutOf(kLarge).ByteSizeLong(), " bytes"))));
  // Later frames of the same connection are read.
  client.Call(3, kPut, PutOf(1000));
  const auto small = client.Next();
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->code(), absl::StatusCode::kOk) << small->text();
  ASSERT_NO_FATAL_FAILURE(LimitData(coordinator_->pid(), -1));
  client.Call(4, kPut, PutOf(kLarge));
  const auto large = client.Next();
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(large->code(), absl::StatusCode::kOk) << large->text();
}

}  // namespace
}  // namespace cohort
