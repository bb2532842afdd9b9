#include "coordinator/service/tcpstore/tcpstore_calls.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator::tcpstore {
namespace {

using ::testing::HasSubstr;

// The answer to multi_get of `times` times the key "k".
absl::Status AnswerAbout(size_t times, const Payload& value, AnswerBytes* answer) {
  Asked asked;
  asked.operation = Operation::kMultiGet;
  asked.keys.assign(times, "k");
  GetReply get;
  get.values.push_back(KeyValue{"k", value});
  Reply reply;
  reply.body = std::move(get);
  return MakeAnswer(asked, reply, answer);
}

TEST(TcpStoreCallsTest, AKeyThatIsNamedOftenHasItsValueOnce) {
  const Payload value(std::string(1 << 20, 'v'), nullptr);
  AnswerBytes answer;
  ASSERT_TRUE(AnswerAbout(1000, value, &answer).ok());
  EXPECT_EQ(answer.bytes.size(), 8000u);
  ASSERT_EQ(answer.values.size(), 1000u);
  for (const AnswerBytes::Value& each : answer.values) {
    EXPECT_EQ(each.payload.bytes().data(), value.bytes().data());
  }
}

TEST(TcpStoreCallsTest, TheMemoryOfAnAnswerHasABound) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{1} << 20}) {
    const Payload value(std::string(size, 'v'), nullptr);
    AnswerBytes answer;
    const absl::Status status = AnswerAbout(131072, value, &answer);
    if (size < 2) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("131072 keys"));
    EXPECT_TRUE(answer.bytes.empty());
  }
}

TEST(TcpStoreCallsTest, ValuesOfQueuesDoNotExpire) {
  Request request;
  request.operation = Operation::kQueuePush;
  request.keys = {"q"};
  request.values = {"v"};
  Asked asked;
  const CallBody body = MakeCall(request, "client", &asked);
  EXPECT_GT(std::get<QueuePushCall>(body).expiration.value_or(absl::ZeroDuration()),
            absl::Hours(24 * 300));
}

TEST(TcpStoreCallsTest, AQueueCountsAsAKeyWhereNoValueIsAskedFor) {
  for (const Operation operation :
       {Operation::kCheck, Operation::kWait, Operation::kGet, Operation::kMultiGet}) {
    Request request;
    request.operation = operation;
    request.keys = {"q"};
    Asked asked;
    const CallBody body = MakeCall(request, "client", &asked);
    const auto& get = std::get<GetCall>(body);
    const bool no_value = operation == Operation::kCheck || operation == Operation::kWait;
    EXPECT_EQ(get.or_queue, no_value) << static_cast<int>(operation);
    EXPECT_EQ(get.keys_only, no_value) << static_cast<int>(operation);
    EXPECT_EQ(get.wait, operation == Operation::kWait) << static_cast<int>(operation);
  }
}

}  // namespace
}  // namespace cohort::coordinator::tcpstore
