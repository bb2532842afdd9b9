// Clients of one worker are different clients for the coordinator, too.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/rpc/client_names.h"
#include "base/tls/testing/certificates.h"
#include "client/collective/remote/remote_group.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;

// Coordinator and worker have an access policy each. The worker is spiffe://test/w for the
// coordinator.
class WorkerClientIdentityTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
    WritePolicy(kCoordinator, {Rule("w"), Rule("a"), Rule("b")});
    WritePolicy(kWorker, {Rule("a"), Rule("b"), Rule("c")});
    setenv(testing::kCoordinatorFlagsVariable, absl::StrJoin(FlagsOf(kCoordinator), " ").c_str(),
           1);
    WorkerTest::SetUp();
    unsetenv(testing::kCoordinatorFlagsVariable);
    const auto worker = ca_.Sign("w", {"w", "URI:spiffe://test/w"});
    StartWorker(FlagsOf(kWorker), {absl::StrCat("COHORT_TLS_CERTIFICATE=", worker.certificate),
                                   absl::StrCat("COHORT_TLS_KEY=", worker.key),
                                   absl::StrCat("COHORT_TLS_CA=", worker.ca)});
  }
  void TearDown() override {
    for (const char* const name : {"COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY", "COHORT_TLS_CA"})
      unsetenv(name);
  }

  static constexpr char kCoordinator[] = "coordinator";
  static constexpr char kWorker[] = "worker";

  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string Rule(const std::string& name) {
    return absl::StrCat(R"({"identity": "spiffe://test/)", name,
                        R"(", "tenant": "t", "role": "member"})");
  }
  std::string PolicyOf(const std::string& server) const {
    return absl::StrCat(folder_, "/", server, ".json");
  }
  void WritePolicy(const std::string& server, const std::vector<std::string>& rules) const {
    const std::string next = PolicyOf(server) + ".next";
    std::ofstream(next) << absl::StrCat(R"({"rules": [)", absl::StrJoin(rules, ", "), "]}");
    ASSERT_EQ(rename(next.c_str(), PolicyOf(server).c_str()), 0);
  }
  std::vector<std::string> FlagsOf(const std::string& server) const {
    const auto signed_files = ca_.Sign(server, {server, "DNS:localhost,IP:127.0.0.1"});
    return {"--access-policy", PolicyOf(server), "--tls-certificate", signed_files.certificate,
            "--tls-key",       signed_files.key, "--tls-client-ca",   signed_files.ca};
  }
  // Joins as spiffe://test/NAME, on a session of its own.
  absl::StatusOr<std::unique_ptr<client::RemoteGroup>> Join(
      const std::string& name, const std::string& group, const std::string& member,
      Transport transport = Transport::kRemoteTcp) {
    const auto client = ca_.Sign(name, {name, "URI:spiffe://test/" + name});
    setenv("COHORT_TLS_CERTIFICATE", client.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", client.key.c_str(), 1);
    setenv("COHORT_TLS_CA", client.ca.c_str(), 1);
    client::RemoteGroupOptions options = GroupOptionsOf(Connect(0, transport, name), group, 0, 1);
    options.tenant = "t";
    options.member = member;
    return client::RemoteGroup::Create(options);
  }

  const std::string folder_ = testing::NewFolder();
  const CertificateAuthority ca_{folder_};
};

void ExpectDenied(const absl::Status& status, const std::string& why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

TEST_F(WorkerClientIdentityTest, OneClientDoesNotTakeTheMemberOfAnother) {
  for (const Transport transport : {Transport::kRemoteTcp, Transport::kTcp}) {
    const std::string group = absl::StrCat("g", static_cast<int>(transport));
    const auto of_a = Join("a", group, "trainer", transport);
    ASSERT_TRUE(of_a.ok()) << of_a.status();
    ExpectDenied(
        Join("b", group, "trainer", transport).status(),
        "belongs to spiffe://test/a through spiffe://test/w, not to spiffe://test/b through "
        "spiffe://test/w");
    // The member of the first client is still there, and its calls have their rights by both
    // protocols.
    for (int i = 0; i < 20; ++i) EXPECT_TRUE((*of_a)->Barrier().ok());
    // A new process of the same client takes its place.
    EXPECT_TRUE(Join("a", group, "trainer", transport).ok());
  }
}

// The metadata by which a worker names its clients to the coordinator are a worker's word alone.
TEST_F(WorkerClientIdentityTest, AClientNamesNoOtherClient) {
  const auto of_a = Join("a", "g", "trainer");
  ASSERT_TRUE(of_a.ok()) << of_a.status();
  const auto files = ca_.Sign("b", {"b", "URI:spiffe://test/b"});
  const auto stub = v1::WorkerService::NewStub(
      grpc::CreateChannel(AddressOf(0, Transport::kRemoteTcp),
                          grpc::SslCredentials({ReadFile(files.ca), ReadFile(files.key),
                                                ReadFile(files.certificate)})));
  grpc::ClientContext session_context;
  session_context.AddMetadata(kClientNamesMetadata, EncodeClientNames({"spiffe://test/a"}));
  const auto session = stub->OpenSession(&session_context, v1::OpenSessionRequest());
  v1::SessionEvent opened;
  ASSERT_TRUE(session->Read(&opened));
  v1::JoinGroupRequest join;
  join.set_session(opened.opened().session());
  join.set_tenant("t");
  join.set_group("g");
  join.set_rank(0);
  join.set_world_size(1);
  join.set_member("trainer");
  grpc::ClientContext context;
  context.AddMetadata(kClientNamesMetadata, EncodeClientNames({"spiffe://test/a"}));
  v1::JoinGroupResponse response;
  const grpc::Status status = stub->JoinGroup(&context, join, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("not to spiffe://test/b through"));
  EXPECT_TRUE((*of_a)->Barrier().ok());
  session_context.TryCancel();
}

TEST_F(WorkerClientIdentityTest, AClientNeedsItsRoleAtTheCoordinator) {
  ExpectDenied(Join("c", "g", "trainer").status(),
               "Join needs the role member in a tenant, and spiffe://test/c through "
               "spiffe://test/w has no role");
  // The worker's connection for other clients is another one.
  EXPECT_TRUE(Join("a", "g", "trainer").ok());
}

TEST_F(WorkerClientIdentityTest, ARuleThatGoesEndsTheCallsOfItsClientAlone) {
  const auto of_a = Join("a", "one", "trainer");
  const auto of_b = Join("b", "two", "trainer");
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << of_a.status() << of_b.status();
  WritePolicy(kCoordinator, {Rule("w"), Rule("b")});
  absl::Status denied;
  ASSERT_TRUE(testing::Eventually([&] {
    denied = (*of_a)->Rejoin(absl::Seconds(1));
    return absl::IsPermissionDenied(denied);
  })) << denied;
  ExpectDenied(denied, "spiffe://test/a through spiffe://test/w");
  EXPECT_TRUE((*of_b)->Barrier().ok());
}

}  // namespace
}  // namespace cohort
