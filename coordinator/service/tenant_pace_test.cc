// A tenant over max_tenant_requests_per_second is read more slowly, over both protocols.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using framed_rpc::Kind;
using framed_rpc::TestClient;

constexpr char kPut[] = "cohort.v1.StoreService/Put";
constexpr int kRate = 1000;
constexpr int kCalls = 300;
// Each connection may have 32 requests handled together.
const absl::Duration kLeast = absl::Seconds(kCalls - 40) / kRate;

class TenantPaceTest : public RpcServerTestBase {
 protected:
  void SetUp() override {
    const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/policy.json");
    std::ofstream(path)
        << R"({"rules": [{"identity": "anonymous", "tenant": "*", "role": "member"}]})";
    auto policy = AccessPolicy::Load(path);
    ASSERT_TRUE(policy.ok()) << policy.status();
    server_options_.listener.access = *std::move(policy);
    dispatcher_options_.checks_access = true;
    RpcServerTestBase::SetUp();
    Limits limits = engine_->limits();
    limits.max_tenant_requests_per_second = kRate;
    engine_->SetLimits(limits);
    company_ = std::thread([this] {
      const auto stub = v1::StoreService::NewStub(NewChannel());
      while (!stop_) {
        EXPECT_TRUE(PutByGrpc(*stub, "company").ok());
        ++company_calls_;
      }
    });
    while (company_calls_ == 0) std::this_thread::yield();
  }
  void TearDown() override {
    stop_ = true;
    company_.join();
    EXPECT_GT(company_calls_, 1);
    RpcServerTestBase::TearDown();
  }

  static v1::PutRequest Put(const std::string& tenant, size_t bytes = 10) {
    v1::PutRequest request;
    request.mutable_scope()->set_tenant(tenant);
    request.set_key("key");
    request.set_value(std::string(bytes, 'x'));
    return request;
  }
  static grpc::Status PutByGrpc(v1::StoreService::Stub& stub, const std::string& tenant) {
    grpc::ClientContext context;
    v1::PutResponse response;
    return stub.Put(&context, Put(tenant), &response);
  }

  std::thread company_;
  std::atomic<bool> stop_{false};
  std::atomic<int> company_calls_{0};
};

TEST_F(TenantPaceTest, FramesThatCameTogetherAreHandledAtTheRate) {
  TestClient client(server_->addresses()[0]);
  client.Greet();
  std::string frames;
  for (int call = 1; call <= kCalls; ++call) {
    frames += client.Frame(Kind::kCall, static_cast<uint32_t>(call), kPut,
                           Put("flood").SerializeAsString());
  }
  const Instant start = Clock::Steady().Now();
  client.Send(frames);
  for (int call = 1; call <= kCalls; ++call) {
    const auto reply = client.Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->code(), absl::StatusCode::kOk) << reply->text();
    EXPECT_EQ(reply->header.call, static_cast<uint32_t>(call));
  }
  EXPECT_GE(Clock::Steady().Now() - start, kLeast);
}

TEST_F(TenantPaceTest, RefusedCallsCountForTheIdentity) {
  TestClient client(server_->addresses()[0]);
  client.Greet();
  std::string frames;
  for (int call = 1; call <= kCalls; ++call) {
    frames += client.Frame(Kind::kCall, static_cast<uint32_t>(call), kPut, "\xff");
  }
  const Instant start = Clock::Steady().Now();
  client.Send(frames);
  for (int call = 1; call <= kCalls; ++call) {
    const auto reply = client.Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->code(), absl::StatusCode::kInvalidArgument) << reply->text();
  }
  EXPECT_GE(Clock::Steady().Now() - start, kLeast);
}

TEST_F(TenantPaceTest, ConnectionsOfATenantShareItsRate) {
  const Instant start = Clock::Steady().Now();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->addresses()[0]));
    clients.back()->Greet();
  }
  constexpr int kCallsEach = 64;  // the second half waits for the rate
  for (int call = 1; call <= kCallsEach; ++call) {
    for (const auto& client : clients)
      client->Call(static_cast<uint32_t>(call), kPut, Put("flood"));
  }
  for (int call = 1; call <= kCallsEach; ++call) {
    for (const auto& client : clients) ASSERT_TRUE(client->Next().has_value());
  }
  EXPECT_GE(Clock::Steady().Now() - start, kLeast);
}

TEST_F(TenantPaceTest, CallsByGrpcAreReadAtTheRate) {
  const auto stub = v1::StoreService::NewStub(channel_);
  const Instant start = Clock::Steady().Now();
  // Each counts as several.
  for (int call = 0; call < kCalls / TenantRates::kGrpcRequest + 1; ++call) {
    const grpc::Status status = PutByGrpc(*stub, "flood");
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_GE(Clock::Steady().Now() - start, kLeast);
}

TEST_F(TenantPaceTest, AClientMayLeaveDuringAPause) {
  for (int i = 0; i < 20; ++i) {
    TestClient client(server_->addresses()[0]);
    client.Greet();
    client.Call(1, kPut, Put("flood", 60000));
    ASSERT_TRUE(client.Next().has_value());
    client.Call(2, kPut, Put("flood"));
  }
}

}  // namespace
}  // namespace cohort::coordinator
