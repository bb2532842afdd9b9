// Each port serves the protocols that its address names.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "coordinator/service/rpc_server.h"
#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

// A port that accepts plain connections from this machine.
class ServedProtocolsTest : public RpcServerTestBase {
 protected:
  void SetUp() override {}
  void Start(const std::vector<std::string>& listen, bool with_tls = false) {
    server_options_.listen = listen;
    if (with_tls) {
      const testing::CertificateAuthority ca(::testing::TempDir());
      server_options_.listener.tls =
          TlsContext::Load(ca.Sign("server", {"server", "DNS:localhost"}), TlsSide::kServer)
              .value();
    }
    RpcServerTestBase::SetUp();
  }
  std::string AddressOf(size_t index) const { return server_->addresses()[index]; }

  bool ServesTcpStore(size_t index) const {
    constexpr int kSet = 1;
    constexpr int kGet = 3;
    const std::string set =
        tcpstore::RequestBytes(kSet, {tcpstore::TextBytes("key"), tcpstore::TextBytes("value")});
    tcpstore::TestClient client(PortOf(index), tcpstore::Hello() + set);
    const std::string value = tcpstore::TextBytes("value");
    return client.Ask(tcpstore::RequestBytes(kGet, {tcpstore::TextBytes("key")}), value.size()) ==
           value;
  }
  int PortOf(size_t index) const {
    const std::string address = AddressOf(index);
    return std::stoi(address.substr(address.rfind(':') + 1));
  }
  // Another server would close the connection, or answer in HTTP/2.
  bool ServesFrames(size_t index) const {
    return tcpstore::TestClient(PortOf(index), framed_rpc::kPreface).Read(1) == "C";
  }
  bool ServesHttp2(size_t index) const {
    const std::string greeting =
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9);
    return !tcpstore::TestClient(PortOf(index), greeting).Read(1).empty();
  }
  // Whether gRPC has the method.
  bool ServesMethod(size_t index, const std::string& method) const {
    grpc::GenericStub stub(
        grpc::CreateChannel(AddressOf(index), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    grpc::CompletionQueue queue;
    const grpc::Slice slice;
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    return status.error_code() != grpc::StatusCode::UNIMPLEMENTED;
  }
  bool ServesRpc(size_t index) const {
    return ServesMethod(index, "/cohort.v1.GroupService/GetGroup");
  }
  bool ServesTorchft(size_t index) const {
    return ServesMethod(index, "/torchft.LighthouseService/Heartbeat");
  }
  bool ServesHealth(size_t index) const {
    return ServesMethod(index, "/grpc.health.v1.Health/Check");
  }
};

TEST_F(ServedProtocolsTest, AnAddressThatNamesNoneServesAll) {
  Start({"127.0.0.1:0"});
  EXPECT_TRUE(ServesRpc(0));
  EXPECT_TRUE(ServesFrames(0));
  EXPECT_TRUE(ServesTcpStore(0));
  EXPECT_TRUE(ServesTorchft(0));
  EXPECT_TRUE(ServesHealth(0));
}

TEST_F(ServedProtocolsTest, EachAddressServesThoseThatItNames) {
  Start({"127.0.0.1:0,rpc", "127.0.0.1:0,tcpstore", "127.0.0.1:0,torchft"});
  EXPECT_TRUE(ServesRpc(0));
  EXPECT_TRUE(ServesFrames(0));
  EXPECT_FALSE(ServesTcpStore(0));
  EXPECT_FALSE(ServesTorchft(0));

  EXPECT_FALSE(ServesHttp2(1));
  EXPECT_FALSE(ServesFrames(1));
  EXPECT_TRUE(ServesTcpStore(1));

  EXPECT_FALSE(ServesRpc(2));
  EXPECT_FALSE(ServesFrames(2));
  EXPECT_FALSE(ServesTcpStore(2));
  EXPECT_TRUE(ServesTorchft(2));

  for (const size_t index : {0, 2}) EXPECT_TRUE(ServesHealth(index)) << index;
}

TEST_F(ServedProtocolsTest, WithTlsAnAddressServesRpcUnlessItNamesMore) {
  Start({"127.0.0.1:0", "127.0.0.1:0,rpc,tcpstore,torchft"}, /*with_tls=*/true);
  EXPECT_TRUE(ServesRpc(0));
  EXPECT_FALSE(ServesTcpStore(0));
  EXPECT_FALSE(ServesTorchft(0));
  EXPECT_TRUE(ServesRpc(1));
  EXPECT_TRUE(ServesTcpStore(1));
  EXPECT_TRUE(ServesTorchft(1));
}

TEST_F(ServedProtocolsTest, AUnixSocketServesRpc) {
  char folder[] = "/tmp/cohort-XXXXXX";  // a socket's path has at most 107 bytes
  ASSERT_NE(mkdtemp(folder), nullptr);
  Start({absl::StrCat("unix:", folder, "/coordinator.sock")});
  EXPECT_TRUE(ServesRpc(0));
  framed_rpc::TestClient client(AddressOf(0));
  client.Greet();
  EXPECT_FALSE(client.methods().empty());
  rmdir(folder);
}

}  // namespace
}  // namespace cohort::coordinator
