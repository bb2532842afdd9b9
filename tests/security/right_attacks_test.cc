// Clients that pass the handshake and want more rights than they have: bytes of another client sent
// again, names that look like others, tokens that are not theirs or no longer are.
#include <sys/socket.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/access/token_hash.h"
#include "base/framed_rpc/frame.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/unique_fd.h"
#include "cohort/v1/store.grpc.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/fuzz/access/damaged_tls_client.h"
#include "tests/fuzz/access/frame_client.h"
#include "tests/fuzz/access/guarded_coordinator.h"
#include "tests/security/raw_tls_client.h"

namespace cohort::testing {
namespace {

using coordinator::fuzz::DamagedTlsClient;
using coordinator::fuzz::FrameClient;
using coordinator::fuzz::GuardedCoordinator;
using coordinator::fuzz::kGoodToken;
using ::testing::HasSubstr;

constexpr char kAdd[] = "cohort.v1.StoreService/Add";
constexpr char kPut[] = "cohort.v1.StoreService/Put";
constexpr absl::Duration kTimeout = absl::Seconds(20);

v1::PutRequest PutIn(const std::string& tenant) {
  v1::PutRequest put;
  put.mutable_scope()->set_tenant(tenant);
  put.set_key("key");
  return put;
}

class RightAttacksTest : public ::testing::Test {
 protected:
  // Afterwards another client is served.
  void TearDown() override {
    const absl::Status served = coordinator_.ServesGoodClient();
    EXPECT_TRUE(served.ok()) << served;
  }

  std::unique_ptr<FrameClient> Connect(const TlsFiles& files) {
    auto client = coordinator_.Connect(files);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::unique_ptr<FrameClient> ConnectWithToken(const std::string& token) {
    std::unique_ptr<FrameClient> client = Connect(coordinator_.anonymous());
    client->Send(framed_rpc::Kind::kToken, 0, token);
    return client;
  }
  static std::string ErrorOf(FrameClient& client, const google::protobuf::MessageLite& request,
                             const std::string& method = kPut) {
    client.Send(framed_rpc::Kind::kCall, client.NumberOf(method), request.SerializeAsString());
    const auto reply = client.Next();
    return reply.has_value() ? reply->text : "closed";
  }
  // By gRPC, with these values of the header for tokens.
  grpc::Status PutByGrpc(const std::vector<std::string>& values) const {
    const auto channel =
        grpc::CreateChannel("unix:" + coordinator_.path(), grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    for (const std::string& value : values) context.AddMetadata("authorization", value);
    v1::PutResponse response;
    return v1::StoreService::NewStub(channel)->Put(&context, PutIn("a"), &response);
  }
  void WriteTokens(const std::string& token) const {
    const std::string path = coordinator_.folder() + "/policy.json";
    std::ofstream(path + ".next") << absl::StrCat(
        R"({"rules": [
          {"identity": "spiffe://fuzz/good", "tenant": "*", "role": "operator"},
          {"identity": "token:good", "tenant": "a", "role": "member"}], "tokens": [
          {"name": "good", "sha256": ")",
        absl::BytesToHexString(HashToken(token)), R"("}]})");
    ASSERT_EQ(rename((path + ".next").c_str(), path.c_str()), 0);
  }

  GuardedCoordinator coordinator_{true};
};

// Sends `bytes`, and receives until the other side closes.
std::string SendAndDrain(int fd, absl::string_view bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  shutdown(fd, SHUT_WR);
  std::string received;
  char buffer[4096];
  for (ssize_t count; (count = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    received.append(buffer, static_cast<size_t>(count));
  }
  return received;
}

TEST_F(RightAttacksTest, TheBytesOfAnotherClientSentAgain) {
  v1::AddRequest add;
  add.set_key("counter");
  add.set_delta(1);
  const std::unique_ptr<FrameClient> good = Connect(coordinator_.client());
  framed_rpc::Header header;
  header.kind = framed_rpc::Kind::kCall;
  header.call = 1;
  header.method = good->NumberOf(kAdd);
  header.extra = framed_rpc::kNoTimeout;
  header.body_bytes = static_cast<uint32_t>(add.ByteSizeLong());
  std::string message(framed_rpc::kPreface);
  framed_rpc::AppendHeader(header, &message);
  message += add.SerializeAsString();

  // A client's whole session, recorded by an attacker on the network.
  DamagedTlsClient victim(coordinator_.client(), TLS1_3_VERSION, {});
  const UniqueFd fd = ConnectBlocking(coordinator_.path());
  std::string recorded;
  while (!victim.connected()) {
    victim.Run(message);
    const std::string bytes = victim.Take();
    recorded += bytes;
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    char buffer[16384];
    if (victim.connected()) break;
    const ssize_t count = recv(fd.get(), buffer, sizeof(buffer), 0);
    ASSERT_GT(count, 0);
    victim.Give(absl::string_view(buffer, static_cast<size_t>(count)));
  }
  // The coordinator has read all of it once it closes.
  SendAndDrain(fd.get(), "");
  EXPECT_NE(SendAndDrain(ConnectBlocking(coordinator_.path()).get(), recorded), "");

  add.set_delta(0);
  good->Send(framed_rpc::Kind::kCall, header.method, add.SerializeAsString());
  const auto reply = good->Next();
  ASSERT_TRUE(reply.has_value());
  v1::AddResponse response;
  ASSERT_TRUE(response.ParseFromString(reply->body));
  EXPECT_EQ(response.value(), 1);
}

TEST_F(RightAttacksTest, ACertificateWithTheNameOfAToken) {
  for (const char* const uri : {"token:good", "uid:0", "anonymous"}) {
    const auto client =
        Connect(coordinator_.ca().Sign("impostor", {"x", absl::StrCat("URI:", uri)}));
    EXPECT_EQ(ErrorOf(*client, PutIn("a")),
              "Put needs the role member in a tenant, and cn:x has no role there");
  }
}

TEST_F(RightAttacksTest, ACommonNameThatIsAnothersUri) {
  const auto client = Connect(coordinator_.ca().Sign("impostor", {"spiffe://fuzz/good", ""}));
  EXPECT_EQ(ErrorOf(*client, PutIn("a")),
            "Put needs the role member in a tenant, and cn:spiffe://fuzz/good has no role there");
}

TEST_F(RightAttacksTest, ATokenInAnotherTenant) {
  const auto client = ConnectWithToken(kGoodToken);
  EXPECT_EQ(ErrorOf(*client, PutIn("a")), "");
  EXPECT_EQ(ErrorOf(*client, PutIn("b")),
            "Put needs the role member in tenant b, and token:good has no role there");
  EXPECT_EQ(ErrorOf(*client, PutIn("*")),
            "scope.tenant: has a character outside of [A-Za-z0-9._:/@+-]");
}

TEST_F(RightAttacksTest, AGuessedTokenBesideARightCertificate) {
  const auto client = Connect(coordinator_.client());
  client->Send(framed_rpc::Kind::kToken, 0, "guess");
  EXPECT_THAT(ErrorOf(*client, PutIn("a")), HasSubstr("a client with an unknown token"));
}

TEST_F(RightAttacksTest, AGuessedTokenInPlaceOfARightOne) {
  const auto client = ConnectWithToken(kGoodToken);
  EXPECT_EQ(ErrorOf(*client, PutIn("a")), "");
  client->Send(framed_rpc::Kind::kToken, 0, "guess");
  EXPECT_THAT(ErrorOf(*client, PutIn("a")), HasSubstr("a client with an unknown token"));
}

TEST_F(RightAttacksTest, ATokenThatIsRevokedWhileItsConnectionIsOpen) {
  const auto client = ConnectWithToken(kGoodToken);
  ASSERT_EQ(ErrorOf(*client, PutIn("a")), "");
  WriteTokens("another token");
  // The coordinator looks at the file once a second, when a client calls.
  std::string error;
  for (const absl::Time end = absl::Now() + kTimeout; error.empty() && absl::Now() < end;) {
    error = ErrorOf(*client, PutIn("a"));
  }
  EXPECT_THAT(error, HasSubstr("a client with an unknown token has no role there"));
  // Sent again on a new connection, it gives no rights either.
  EXPECT_THAT(ErrorOf(*ConnectWithToken(kGoodToken), PutIn("a")),
              HasSubstr("a client with an unknown token has no role there"));
}

TEST_F(RightAttacksTest, MetadataThatIsTooLong) {
  const grpc::Status token = PutByGrpc({absl::StrCat("Bearer ", std::string(5000, 'x'))});
  EXPECT_EQ(token.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(token.error_message(), HasSubstr("a client with an unknown token"));
  // gRPC refuses headers of more than 8 KiB before a service sees the call.
  const grpc::Status header = PutByGrpc({absl::StrCat("Bearer ", std::string(20 << 10, 'x'))});
  EXPECT_EQ(header.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << header.error_message();
}

TEST_F(RightAttacksTest, TwoTokensInOneCall) {
  const std::string good = absl::StrCat("Bearer ", kGoodToken);
  EXPECT_TRUE(PutByGrpc({good}).ok());
  // One of them counts, and the other one adds nothing.
  EXPECT_FALSE(PutByGrpc({"Bearer guess", "Bearer another"}).ok());
  EXPECT_FALSE(PutByGrpc({absl::StrCat("Bearer guess, ", good)}).ok());
  EXPECT_FALSE(PutByGrpc({absl::StrCat(good, ", Bearer guess")}).ok());
}

}  // namespace
}  // namespace cohort::testing
