// Clients that show tokens, by gRPC and by framed RPC.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/access/token_hash.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/testing/access_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchft/lighthouse.grpc.pb.h"

namespace cohort::coordinator {
namespace {

using framed_rpc::TestClient;
using ::testing::HasSubstr;

// The user of this process has no rights; the token "secret" has.
class TokensTest : public AccessTestBase {
 protected:
  void SetUp() override {
    Start(Role::kNone, "");
    WritePolicy(R"({"identity": "token:ci", "tenant": "a", "role": "member"})",
                absl::StrCat(R"({"name": "ci", "sha256": ")",
                             absl::BytesToHexString(HashToken("secret")), R"("})"));
    // The coordinator looks at the file once a second.
    for (const absl::Time end = absl::Now() + kTimeout; absl::Now() < end;) {
      if (PutByGrpc({{"authorization", "Bearer secret"}}).ok()) break;
    }
  }

  static v1::PutRequest Put() {
    v1::PutRequest put;
    put.mutable_scope()->set_tenant("a");
    put.set_key("key");
    return put;
  }
  grpc::Status PutByGrpc(const std::vector<std::pair<std::string, std::string>>& metadata) {
    grpc::ClientContext context;
    for (const auto& [name, value] : metadata) context.AddMetadata(name, value);
    v1::PutResponse response;
    return v1::StoreService::NewStub(channel_)->Put(&context, Put(), &response);
  }
  // The error of a Put behind a frame with `token`; "" if it is OK, "closed" without an answer.
  std::string PutByFrames(const std::vector<std::string>& tokens) {
    TestClient client(server_->addresses()[0]);
    client.Greet();
    std::string bytes;
    for (const std::string& token : tokens) {
      bytes += client.Frame(framed_rpc::Kind::kToken, 0, "", token);
    }
    client.Send(bytes + client.Frame(framed_rpc::Kind::kCall, 1, "cohort.v1.StoreService/Put",
                                     Put().SerializeAsString()));
    const auto reply = client.Next();
    return reply.has_value() ? reply->text() : "closed";
  }
};

constexpr char kUnknownToken[] = "and a client with an unknown token has no role there";

TEST_F(TokensTest, ByGrpc) {
  EXPECT_TRUE(PutByGrpc({{"authorization", "Bearer secret"}}).ok());
  EXPECT_TRUE(PutByGrpc({{"authorization", "bearer secret"}}).ok());
  for (const char* const value : {"Bearer ", "Bearer secre", "Bearer secret2", "Bearer  secret"}) {
    const grpc::Status status = PutByGrpc({{"authorization", value}});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << value;
    EXPECT_THAT(status.error_message(), HasSubstr(kUnknownToken)) << value;
  }
  // The token counts for its own call alone.
  EXPECT_THAT(PutByGrpc({}).error_message(), HasSubstr(absl::StrCat("and uid:", geteuid())));
  EXPECT_THAT(PutByGrpc({{"authorization", "Basic secret"}}).error_message(),
              HasSubstr(absl::StrCat("and uid:", geteuid())));
}

TEST_F(TokensTest, AReplicaOfTorchftIsOfTheIdentityThatUsesIt) {
  const auto beat = [&](const std::string& token) {
    ::torchft::LighthouseHeartbeatRequest request;
    request.set_replica_id("replica");
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    ::torchft::LighthouseHeartbeatResponse response;
    return ::torchft::LighthouseService::NewStub(channel_)->Heartbeat(&context, request, &response);
  };
  // The Unix socket counts as port 0.
  WritePolicy(
      absl::StrCat(
          R"({"identity": "token:ci", "tenant": "*", "role": "member"}, {"identity": "uid:)",
          geteuid(), R"(", "tenant": "torchft-0", "role": "member"})"),
      absl::StrCat(R"({"name": "ci", "sha256": ")", absl::BytesToHexString(HashToken("secret")),
                   R"("})"));
  grpc::Status status;
  for (const absl::Time end = absl::Now() + kTimeout; absl::Now() < end;) {
    status = beat("secret");
    if (status.ok()) break;
  }
  ASSERT_TRUE(status.ok()) << status.error_message();
  status = beat("");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("replica replica belongs to token:ci, not to uid:"));
  EXPECT_TRUE(beat("secret").ok());
}

class OldHeartbeatsTest : public TokensTest {
 protected:
  OldHeartbeatsTest() {
    server_options_.torchft.min_replicas = 2;
    server_options_.torchft.heartbeat_timeout = absl::Nanoseconds(1);
  }
};

TEST_F(OldHeartbeatsTest, AReplicaThatWaitsForAQuorumIsNotTakenOver) {
  const std::string token = absl::StrCat(R"({"name": "ci", "sha256": ")",
                                         absl::BytesToHexString(HashToken("secret")), R"("})");
  WritePolicy(
      absl::StrCat(
          R"({"identity": "token:ci", "tenant": "*", "role": "member"}, {"identity": "uid:)",
          geteuid(), R"(", "tenant": "torchft-0", "role": "member"})"),
      token);
  const auto stub = ::torchft::LighthouseService::NewStub(channel_);
  const auto beat = [&](bool with_token) {
    grpc::ClientContext context;
    if (with_token) context.AddMetadata("authorization", "Bearer secret");
    ::torchft::LighthouseHeartbeatRequest request;
    request.set_replica_id("replica");
    ::torchft::LighthouseHeartbeatResponse response;
    return stub->Heartbeat(&context, request, &response);
  };
  for (const absl::Time end = absl::Now() + kTimeout; absl::Now() < end;) {
    if (beat(true).ok()) break;
  }
  // The later call ends the earlier one, and is sure to wait from then on.
  grpc::ClientContext contexts[2];
  std::atomic<int> ended_count = 0;
  std::vector<std::thread> calls;
  for (grpc::ClientContext& context : contexts) {
    context.AddMetadata("authorization", "Bearer secret");
    calls.emplace_back([&] {
      ::torchft::LighthouseQuorumRequest request;
      request.mutable_requester()->set_replica_id("replica");
      ::torchft::LighthouseQuorumResponse response;
      stub->Quorum(&context, request, &response);
      ++ended_count;
    });
  }
  const absl::Time end = absl::Now() + kTimeout;
  while (ended_count == 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(ended_count, 1);
  EXPECT_EQ(beat(false).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::thread& call : calls) call.join();
}

TEST_F(TokensTest, ByFrames) {
  EXPECT_EQ(PutByFrames({"secret"}), "");
  EXPECT_THAT(PutByFrames({}), HasSubstr(absl::StrCat("and uid:", geteuid())));
  EXPECT_THAT(PutByFrames({"wrong"}), HasSubstr(kUnknownToken));
  EXPECT_THAT(PutByFrames({""}), HasSubstr(kUnknownToken));
  EXPECT_THAT(PutByFrames({std::string(4096, 'x')}), HasSubstr(kUnknownToken));
  // The last token counts.
  EXPECT_EQ(PutByFrames({"wrong", "secret"}), "");
  EXPECT_THAT(PutByFrames({"secret", "wrong"}), HasSubstr(kUnknownToken));
  EXPECT_EQ(PutByFrames({std::string(4097, 'x')}), "closed");
}

// And not for the others.
TEST_F(TokensTest, UnreadAnswersCountForTheTenantOfTheToken) {
  TestClient client(server_->addresses()[0]);
  client.Greet();
  client.Send(client.Frame(framed_rpc::Kind::kToken, 0, "", "secret"));
  v1::PutRequest put = Put();
  put.set_value(std::string(1024, 'x'));
  for (int i = 0; i < 60; ++i) {
    put.set_key(absl::StrCat("key", i));
    client.Call(1, "cohort.v1.StoreService/Put", put);
    ASSERT_EQ(client.Next()->code(), absl::StatusCode::kOk);
  }
  v1::RangeRequest range;  // its answers have copies of small values
  *range.mutable_scope() = put.scope();
  const std::string request = client.Frame(
      framed_rpc::Kind::kCall, 2, "cohort.v1.StoreService/Range", range.SerializeAsString());
  for (int sent = 0; sent < 1000 && client.TrySend(request); ++sent) {
  }
  const std::shared_ptr<MemoryAccount> account = engine_->tenants().Of("a");
  const auto unread = [&] { return account->held(MemoryKind::kOutput); };
  const absl::Time end = absl::Now() + kTimeout;
  while (unread() < 1 << 20 && absl::Now() < end) std::this_thread::yield();
  EXPECT_GE(unread(), 1 << 20);
  EXPECT_EQ(unread(), engine_->account().held(MemoryKind::kOutput));
  client.Close();
  while (unread() != 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(unread(), 0);
}

}  // namespace
}  // namespace cohort::coordinator
