// One peer opens connections without end to a coordinator with few descriptors. The coordinator
// still serves new clients, old clients and the metrics.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/framed_rpc/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/limited_coordinator.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/raw_http2.h"
#include "tests/failure/testing/stubs.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using testing::RawHttp2;
using testing::Transport;

constexpr int kDescriptors = 64;
constexpr int kIdle = 200;
constexpr char kScrape[] = "GET /metrics HTTP/1.1\r\n\r\n";

class ConnectionLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start({}, kDescriptors).ok()) << coordinator_.ErrorText();
  }

  void ExpectScrape() {
    RawHttp2 scraper(coordinator_.metrics_port(), kScrape, Transport::kPlain);
    EXPECT_TRUE(scraper.AwaitClosed(absl::Seconds(10)));
    EXPECT_THAT(scraper.last_bytes(), HasSubstr("cohort_uptime_seconds"));
  }

  void ExpectCall(const testing::Stubs& stubs) {
    v1::LimitsResponse response;
    const auto context = testing::Context(absl::Seconds(10));
    context->set_wait_for_ready(true);
    const grpc::Status status =
        stubs.admin->Limits(context.get(), v1::LimitsRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  testing::LimitedCoordinator coordinator_;
};

// The parameter: the bytes that each idle connection sends.
class IdleConnectionsTest : public ConnectionLimitsTest,
                            public ::testing::WithParamInterface<std::string> {};

TEST_P(IdleConnectionsTest, LockOutNeitherClientsNorMetrics) {
  const testing::Stubs before(coordinator_.address(), 1);
  ExpectCall(before);
  auto members = testing::JoinAll({testing::Connect(coordinator_.address())}, "before", 1);
  ASSERT_NE(members[0], nullptr);
  std::vector<std::unique_ptr<RawHttp2>> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.push_back(std::make_unique<RawHttp2>(coordinator_.port(), GetParam()));
  }
  ExpectScrape();
  ExpectCall(testing::Stubs(coordinator_.address(), 2));
  auto newcomers = testing::JoinAll({testing::Connect(coordinator_.address())}, "after", 1);
  ASSERT_NE(newcomers[0], nullptr);
  EXPECT_TRUE(newcomers[0]->Barrier().ok());
  // Older connections that have had requests are still open.
  EXPECT_EQ(before.channel->GetState(false), GRPC_CHANNEL_READY);
  ExpectCall(before);
  EXPECT_TRUE(members[0]->Barrier().ok());
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  constexpr const char* kNames[] = {"Silent", "HalfAPreface", "Http2WithoutARequest",
                                    "FramedRpcWithoutACall"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(, IdleConnectionsTest,
                         ::testing::Values(std::string(), std::string("PRI * HT"),
                                           RawHttp2::Greeting(), std::string(framed_rpc::kPreface)),
                         NameOf);

// The bytes of a call of a method that the server does not have.
std::string CallOf(uint16_t method) {
  framed_rpc::Header header;
  header.kind = framed_rpc::Kind::kCall;
  header.call = method;
  header.method = method;
  header.extra = framed_rpc::kNoTimeout;
  std::string frame;
  framed_rpc::AppendHeader(header, &frame);
  return frame;
}

// It is older than the connections that make room.
TEST_F(ConnectionLimitsTest, AFramedRpcConnectionWithACallStays) {
  RawHttp2 caller(coordinator_.port(), std::string(framed_rpc::kPreface) + CallOf(60001));
  ASSERT_TRUE(caller.AwaitText("no method 60001", absl::Seconds(10)));
  std::vector<std::unique_ptr<RawHttp2>> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.push_back(
        std::make_unique<RawHttp2>(coordinator_.port(), std::string(framed_rpc::kPreface)));
  }
  EXPECT_TRUE(idle.front()->AwaitClosed(absl::Seconds(10)));
  EXPECT_TRUE(caller.Send(CallOf(60002)));
  EXPECT_TRUE(caller.AwaitText("no method 60002", absl::Seconds(10)));
}

// Descriptors end before --max-connections does.
TEST(WithoutAFreeDescriptorTest, IdleConnectionsMakeRoom) {
  testing::LimitedCoordinator coordinator;
  const absl::Status started = coordinator.Start({"--max-connections", "1000"}, kDescriptors);
  ASSERT_TRUE(started.ok()) << coordinator.ErrorText();
  std::vector<std::unique_ptr<RawHttp2>> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.push_back(
        std::make_unique<RawHttp2>(coordinator.port(), std::string(framed_rpc::kPreface)));
  }
  auto members = testing::JoinAll({testing::Connect(coordinator.address())}, "after", 1);
  ASSERT_NE(members[0], nullptr);
  EXPECT_TRUE(members[0]->Barrier().ok());
}

TEST_F(ConnectionLimitsTest, ConnectionsToTheMetricsDoNotBlockOthers) {
  std::vector<std::unique_ptr<RawHttp2>> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.push_back(
        std::make_unique<RawHttp2>(coordinator_.metrics_port(), "GET /met", Transport::kPlain));
  }
  ExpectScrape();
  ExpectCall(testing::Stubs(coordinator_.address()));
}

}  // namespace
}  // namespace cohort
