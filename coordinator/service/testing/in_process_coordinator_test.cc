#include "coordinator/service/testing/in_process_coordinator.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/store.pb.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

TEST(InProcessTest, FromBytesToBytes) {
  InProcessCoordinator coordinator;
  v1::PutRequest put;
  put.set_key("k");
  put.set_value("v");
  ASSERT_TRUE(coordinator.Handle("cohort.v1.StoreService/Put", put.SerializeAsString()).ok());
  v1::GetRequest get;
  get.add_keys("k");
  const auto bytes = coordinator.Handle(Method::kGet, get.SerializeAsString());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  v1::GetResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ASSERT_EQ(response.values_size(), 1);
  EXPECT_EQ(response.values(0).value(), "v");
}

TEST(InProcessTest, SeveralKeysAreComparedAndSetInOneCall) {
  InProcessCoordinator coordinator;
  v1::PutRequest put;
  put.set_key("leader");
  put.set_value("host-a");
  put.set_expected_value("");
  v1::PutEntry* epoch = put.add_more();
  epoch->set_key("epoch");
  epoch->set_value("1");
  epoch->set_expected_revision(0);
  for (bool first : {true, false}) {
    const auto bytes = coordinator.Handle(Method::kPut, put.SerializeAsString());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    v1::PutResponse response;
    ASSERT_TRUE(response.ParseFromString(*bytes));
    EXPECT_EQ(response.written(), first);
    EXPECT_EQ(response.current().value(), first ? "" : "host-a");
    put.set_value("host-b");
  }
}

TEST(InProcessTest, AWaitOverQueuesEndsWithAPush) {
  InProcessCoordinator coordinator;
  v1::GetRequest get;
  get.add_queues("q");
  get.add_keys("either");
  get.set_or_queue(true);
  get.mutable_wait()->set_seconds(100);
  const auto call = coordinator.Begin(Method::kGet, get.SerializeAsString());
  for (const char* queue : {"q", "either"}) {
    EXPECT_FALSE(call->WaitFor(absl::ZeroDuration()));
    v1::QueuePushRequest push;
    push.set_queue(queue);
    ASSERT_TRUE(coordinator.Handle(Method::kQueuePush, push.SerializeAsString()).ok());
  }
  const auto bytes = call->Take();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  v1::GetResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ASSERT_EQ(response.queue_lengths_size(), 2);
  EXPECT_EQ(response.queue_lengths(0).queue(), "q");
  EXPECT_EQ(response.queue_lengths(1).queue(), "either");
  EXPECT_EQ(response.queue_lengths(1).length(), 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(InProcessTest, ARequestWithoutMemoryIsRefused) {
  InProcessOptions options;
  options.limits.max_value_bytes = 32 << 20;
  InProcessCoordinator coordinator(options);
  v1::PutRequest put;
  put.set_key("k");
  put.set_value(std::string(24 << 20, 'x'));
  const std::string request = put.SerializeAsString();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  int64_t pages[6] = {};
  std::ifstream file("/proc/self/statm");
  for (int64_t& count : pages) file >> count;
  rlimit limited = before;
  limited.rlim_cur = static_cast<rlim_t>(pages[5] * sysconf(_SC_PAGESIZE) + (12 << 20));
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limited), 0);
  const absl::Status refused = coordinator.Handle(Method::kPut, request).status();
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "cohort.v1.StoreService/Put: the process has no memory left for a request of " +
                std::to_string(request.size()) + " bytes");
  EXPECT_TRUE(coordinator.Handle(Method::kPut, request).ok());
}
#endif

TEST(InProcessTest, EveryMethodSurvivesNothingAndNoise) {
  InProcessCoordinator coordinator;
  for (size_t i = 0; i < kMethodCount; ++i) {
    const Method method = static_cast<Method>(i);
    EXPECT_EQ(FindMethod(std::string(GetMethod(method).service) + "/" + GetMethod(method).name),
              method);
    // Any answer will do.
    coordinator.Handle(method, "").status().IgnoreError();
    EXPECT_FALSE(coordinator.Handle(method, "\xff\xff\xff\xff").ok()) << GetMethod(method).name;
  }
  EXPECT_EQ(coordinator.Handle("x/y", "").status().code(), absl::StatusCode::kUnimplemented);
}

TEST(InProcessTest, AParkedCallIsCancelled) {
  InProcessCoordinator coordinator;
  v1::GetRequest get;
  get.add_keys("absent");
  get.mutable_wait()->set_seconds(100);
  EXPECT_EQ(coordinator.Handle(Method::kGet, get.SerializeAsString()).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(coordinator.engine().Stats().total.waiter_count, 0);
}

TEST(InProcessTest, LimitsCanBeReadAndSet) {
  InProcessCoordinator coordinator;
  v1::LimitsRequest request;
  (*request.mutable_set())["max_value_bytes"] = 10;
  const auto bytes = coordinator.Handle(Method::kLimits, request.SerializeAsString());
  ASSERT_TRUE(bytes.ok());
  v1::LimitsResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  EXPECT_EQ(response.limits().at("max_value_bytes"), 10);
  v1::PutRequest put;
  put.set_key("k");
  put.set_value("eleven bytes");
  EXPECT_EQ(coordinator.Handle(Method::kPut, put.SerializeAsString()).status().code(),
            absl::StatusCode::kResourceExhausted);
  (*request.mutable_set())["max_nothing"] = 10;
  EXPECT_FALSE(coordinator.Handle(Method::kLimits, request.SerializeAsString()).ok());
}

TEST(InProcessTest, LimitsCannotExceedTheMemory) {
  InProcessCoordinator coordinator;
  for (const char* name : {"max_members", "max_inline_bytes", "max_value_bytes"}) {
    v1::LimitsRequest request;
    (*request.mutable_set())[name] = int64_t{1} << 40;
    EXPECT_EQ(coordinator.Handle(Method::kLimits, request.SerializeAsString()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

// A repeat with the operation id of another method must not be parsed as that method's answer.
TEST(InProcessTest, AnOperationIdBelongsToOneMethod) {
  InProcessCoordinator coordinator;
  v1::AddRequest add;
  add.mutable_scope()->set_operation_id("0123456789abcdef");
  add.set_key("n");
  add.set_delta(1);
  ASSERT_TRUE(coordinator.Handle(Method::kAdd, add.SerializeAsString()).ok());
  v1::DeleteRequest erase;
  erase.mutable_scope()->set_operation_id("0123456789abcdef");
  erase.set_key("n");
  EXPECT_EQ(coordinator.Handle(Method::kDelete, erase.SerializeAsString()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::coordinator
