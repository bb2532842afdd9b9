// Bytes that are no requests.
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/bad_input_test_base.h"

namespace cohort {
namespace {

using BadBytesTest = BadInputTestBase;
using ::testing::AnyOf;
using testing::Context;
using ::testing::HasSubstr;

// Sends each method bytes that are no message, and messages with changed bytes.
TEST_F(BadBytesTest, GarbageAsAMessage) {
  std::mt19937_64 random(testing::TestSeed());
  grpc::GenericStub generic(stubs_->channel);
  std::vector<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::JoinRequest::descriptor()->file(), v1::SendRequest::descriptor()->file(),
        v1::PutRequest::descriptor()->file(), v1::PublishRequest::descriptor()->file(),
        v1::LimitsRequest::descriptor()->file()}) {
    for (int index = 0; index < file->service_count(); ++index) {
      const google::protobuf::ServiceDescriptor* const service = file->service(index);
      for (int number = 0; number < service->method_count(); ++number) {
        methods.push_back(
            absl::StrCat("/", service->full_name(), "/", service->method(number)->name()));
      }
    }
  }
  EXPECT_GE(methods.size(), 43);
  const auto call = [&](const std::string& method, const std::string& bytes) {
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    const auto context = Context(absl::Seconds(2));
    std::promise<grpc::Status> done;
    generic.UnaryCall(context.get(), method, {}, &request, &response,
                      [&done](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  };
  for (const std::string& method : methods) {
    SCOPED_TRACE(method);
    for (int round = 0; round < 5; ++round) {
      // A first byte of 0x07 is a wire type that does not exist: never a message.
      std::string bytes(1, '\x07');
      const size_t size = 1 + random() % 300;
      while (bytes.size() < size) bytes.push_back(static_cast<char>(random()));
      EXPECT_FALSE(call(method, bytes).ok());
    }
  }
}

// Valid messages with random bytes changed: any answer is right, except a dead server, INTERNAL or
// UNKNOWN.
TEST_F(BadBytesTest, MessagesWithFlippedBytes) {
  std::mt19937_64 random(testing::TestSeed());
  grpc::GenericStub generic(stubs_->channel);
  v1::BarrierRequest barrier = Of<v1::BarrierRequest>();
  barrier.mutable_round()->set_name("flip");
  barrier.mutable_round()->mutable_wait()->set_nanos(1000000);
  barrier.mutable_round()->add_participants()->set_last(1);
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.set_tag("flip");
  send.mutable_payload()->set_inline_("value");
  v1::JoinRequest join = testing::JoinRequestOf("group", 1, kWorldSize);
  const std::pair<std::string, std::string> samples[] = {
      {"/cohort.v1.MessagingService/Barrier", barrier.SerializeAsString()},
      {"/cohort.v1.MessagingService/Stats", send.SerializeAsString()},
      {"/cohort.v1.GroupService/GetGroup", join.SerializeAsString()},
      {"/cohort.v1.StoreService/Range", barrier.SerializeAsString()},
  };
  for (const auto& [method, sample] : samples) {
    for (int round = 0; round < 200; ++round) {
      std::string bytes = sample;
      for (int flips = 1 + random() % 3; flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      const grpc::Slice slice(bytes);
      const grpc::ByteBuffer request(&slice, 1);
      grpc::ByteBuffer response;
      const auto context = Context(absl::Milliseconds(500));
      std::promise<grpc::Status> done;
      generic.UnaryCall(context.get(), method, {}, &request, &response,
                        [&done](grpc::Status status) { done.set_value(std::move(status)); });
      const grpc::Status status = done.get_future().get();
      ASSERT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      ASSERT_NE(status.error_code(), grpc::StatusCode::UNKNOWN) << status.error_message();
    }
  }
  // The changed names may have opened and ended rounds, which the statistics count.
  before_ = Stats();
}

}  // namespace
}  // namespace cohort
