// A worker with an access policy: every method with every role, sessions of other identities,
// tenants, rights that end, and coordinators that the worker does not call.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "base/tensor/tensor.h"
#include "base/tls/testing/certificates.h"
#include "base/unique_fd.h"
#include "client/collective/remote/remote_group.h"
#include "client/collective/remote/worker_client.h"
#include "cohort/v1/worker.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/dynamic_message.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using framed_rpc::TestClient;
using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;

constexpr char kRunCollective[] = "cohort.v1.WorkerService/RunCollective";

const google::protobuf::ServiceDescriptor* Service() {
  return v1::JoinGroupRequest::descriptor()->file()->FindServiceByName("WorkerService");
}

// This process is uid:N at the worker's Unix socket, and spiffe://test/NAME at its port.
class WorkerAccessTest : public testing::WorkerTest {
 protected:
  void TearDown() override {
    for (const char* const name :
         {"COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY", "COHORT_TLS_CA", "COHORT_TOKEN_FILE"}) {
      unsetenv(name);
    }
  }

  static std::string Rule(const std::string& identity, const std::string& tenant,
                          const std::string& role) {
    return absl::StrCat(R"({"identity": ")", identity, R"(", "tenant": ")", tenant,
                        R"(", "role": ")", role, R"("})");
  }
  static std::string ThisUser() { return absl::StrCat("uid:", geteuid()); }
  void WritePolicy(const std::vector<std::string>& rules, const std::string& token = "") {
    std::ofstream(policy_ + ".next") << absl::StrCat(R"({"rules": [)", absl::StrJoin(rules, ",\n"),
                                                     R"(], "tokens": [)", token, "]}");
    ASSERT_EQ(rename((policy_ + ".next").c_str(), policy_.c_str()), 0);
  }
  void Start(const std::vector<std::string>& rules, std::vector<std::string> flags = {}) {
    WritePolicy(rules);
    const auto server = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    for (const std::string& flag :
         {std::string("--access-policy"), policy_, std::string("--tls-certificate"),
          server.certificate, std::string("--tls-key"), server.key, std::string("--tls-client-ca"),
          server.ca}) {
      flags.push_back(flag);
    }
    StartWorker(flags);
  }
  // Connections made from now on are of spiffe://test/NAME.
  void Become(const std::string& name) {
    const auto client = ca_.Sign(name, {"client", "URI:spiffe://test/" + name});
    setenv("COHORT_TLS_CERTIFICATE", client.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", client.key.c_str(), 1);
    setenv("COHORT_TLS_CA", client.ca.c_str(), 1);
  }
  client::RemoteGroupOptions JoinOptions(std::shared_ptr<client::WorkerSession> session,
                                         const std::string& tenant) {
    client::RemoteGroupOptions options = GroupOptionsOf(std::move(session), "g", 0, 1);
    options.tenant = tenant;
    return options;
  }
  // An all-reduce, which goes by frames after the first calls.
  static absl::Status Collective(client::Group& group) {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {1});
    return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
  }

  // Calls a method of any type at the Unix socket, with one message.
  grpc::Status Call(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(
        grpc::CreateChannel(AddressOf(0, Transport::kUnix), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    grpc::CompletionQueue queue;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const auto call =
        stub.PrepareCall(&context, absl::StrCat("/cohort.v1.WorkerService/", method), &queue);
    call->StartCall(nullptr);
    await();
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    await();
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    const bool answered = await();
    if (answered && method == "OpenSession") context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    if (answered && status.error_code() == grpc::StatusCode::CANCELLED) return grpc::Status::OK;
    return status;
  }

  const std::string folder_ = testing::NewFolder();
  const std::string policy_ = folder_ + "/policy.json";
  const CertificateAuthority ca_{folder_};
};

void ExpectDenied(const absl::Status& status, const std::string& why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}
void ExpectDenied(const grpc::Status& status, const std::string& why) {
  ExpectDenied(
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()),
      why);
}

class WorkerRolesTest : public WorkerAccessTest,
                        public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Roles, WorkerRolesTest,
                         ::testing::Values("none", "observer", "member", "operator"),
                         [](const auto& info) { return std::string(info.param); });

// A method of which this test knows nothing needs the role member.
TEST_P(WorkerRolesTest, EachMethod) {
  const std::string role = GetParam();
  Start(role == "none" ? std::vector<std::string>() : std::vector{Rule(ThisUser(), "*", role)});
  for (int i = 0; i < Service()->method_count(); ++i) {
    const std::string name = Service()->method(i)->name();
    const bool reads = name == "GetWorker" || name == "GetFlightRecord";
    const bool may = role == "member" || role == "operator" || (reads && role == "observer");
    const grpc::Status status = Call(name, "");
    if (!may) {
      ExpectDenied(status, absl::StrCat(name, " needs the role ", reads ? "observer" : "member",
                                        " in a tenant, and ", ThisUser(), " has "));
    } else {
      EXPECT_NE(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
          << name << ": " << status.error_message();
    }
  }
  TestClient frames(AddressOf(0, Transport::kUnix));
  frames.Greet();
  frames.Send(frames.Frame(framed_rpc::Kind::kCall, 1, kRunCollective, ""));
  const auto reply = frames.Next();
  ASSERT_TRUE(reply.has_value());
  const bool may = role == "member" || role == "operator";
  EXPECT_EQ(reply->code(),
            may ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kPermissionDenied)
      << reply->text();
}

TEST_F(WorkerAccessTest, ASessionIsOfTheIdentityThatOpenedIt) {
  Start({Rule("spiffe://test/a", "a", "member"), Rule(ThisUser(), "a", "member")});
  Become("a");
  // Opened by hand, because only this shows the session.
  const auto stub = StubOf(0);
  grpc::ClientContext context;
  const auto stream = stub->OpenSession(&context, v1::OpenSessionRequest());
  v1::SessionEvent event;
  ASSERT_TRUE(stream->Read(&event));
  const std::string session = event.opened().session();
  v1::JoinGroupRequest join;
  join.set_session(session);
  join.set_group("g");
  join.set_rank(0);
  join.set_world_size(1);
  v1::JoinGroupResponse joined;
  {
    grpc::ClientContext call;
    const grpc::Status status = stub->JoinGroup(&call, join, &joined);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const std::string why = absl::StrCat("belongs to spiffe://test/a, not to ", ThisUser());
  google::protobuf::DynamicMessageFactory factory;
  int methods_of_sessions = 0;
  for (int i = 0; i < Service()->method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *Service()->method(i);
    const google::protobuf::FieldDescriptor* const field =
        method.input_type()->FindFieldByName("session");
    if (field == nullptr) continue;
    ++methods_of_sessions;
    const std::unique_ptr<google::protobuf::Message> request(
        factory.GetPrototype(method.input_type())->New());
    request->GetReflection()->SetString(request.get(), field, session);
    ExpectDenied(Call(method.name(), request->SerializeAsString()), why);
  }
  EXPECT_GE(methods_of_sessions, 13);
  v1::RunCollectiveRequest collective;
  collective.set_session(session);
  collective.set_group(joined.group());
  TestClient frames(AddressOf(0, Transport::kUnix));
  frames.Greet();
  frames.Call(1, kRunCollective, collective);
  const auto reply = frames.Next();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(reply->text(), HasSubstr(why));

  // Nothing has happened to it.
  grpc::ClientContext call;
  v1::LeaveGroupRequest leave;
  leave.set_session(session);
  leave.set_group(joined.group());
  v1::LeaveGroupResponse left;
  EXPECT_TRUE(stub->LeaveGroup(&call, leave, &left).ok());
  context.TryCancel();
}

TEST_F(WorkerAccessTest, TenantsAreApart) {
  Start({Rule("spiffe://test/a", "a", "member"), Rule("spiffe://test/b", "b", "member"),
         Rule("spiffe://test/oncall", "*", "observer")});
  Become("a");
  const auto session = Connect(0, Transport::kTcp);
  ExpectDenied(
      client::RemoteGroup::Create(JoinOptions(session, "b")).status(),
      "JoinGroup needs the role member in tenant b, and spiffe://test/a has no role there");
  const auto group = client::RemoteGroup::Create(JoinOptions(session, ""));
  ASSERT_TRUE(group.ok()) << group.status();
  const auto records = [this](const std::string& name) {
    const auto client = client::WorkerClient::Create(AddressOf(0, Transport::kTcp), kTimeout);
    const auto read = client->ReadFlightRecords(name);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? static_cast<int>(read->size()) : 0;
  };
  const v1::GetWorkerResponse own = Describe(0);
  ASSERT_EQ(own.ranks_size(), 1);
  EXPECT_EQ(own.ranks(0).tenant(), "a");
  for (const auto& [name, ranks] : {std::pair("a", 1), std::pair("b", 0), std::pair("oncall", 1)}) {
    Become(name);
    EXPECT_EQ(Describe(0).ranks_size(), ranks) << name;
    EXPECT_EQ(records(""), ranks) << name;
    EXPECT_EQ(records("g"), ranks) << name;
  }
  EXPECT_TRUE(Collective(**group).ok());
}

TEST_F(WorkerAccessTest, RightsEndWithTheNextCall) {
  Start({Rule("spiffe://test/a", "a", "member")});
  Become("a");
  for (const Transport transport : {Transport::kTcp, Transport::kRemoteTcp}) {
    WritePolicy({Rule("spiffe://test/a", "a", "member")});
    absl::StatusOr<std::unique_ptr<client::RemoteGroup>> group;
    ASSERT_TRUE(testing::Eventually([&] {
      client::WorkerSessionOptions options;
      options.address = AddressOf(0, transport);
      options.attach = transport != Transport::kRemoteTcp;
      auto session = client::WorkerSession::Connect(options);
      if (session.ok()) group = client::RemoteGroup::Create(JoinOptions(*session, "a"));
      return group.ok();
    })) << group.status();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(Collective(**group).ok());
    // A role in another tenant is of no use here.
    WritePolicy({Rule("spiffe://test/a", "b", "member")});
    absl::Status denied;
    ASSERT_TRUE(testing::Eventually([&] {
      denied = Collective(**group);
      return !denied.ok();
    }));
    // The session ends, too, so that a client without calls keeps nothing. A call may come first.
    if (denied.code() == absl::StatusCode::kAborted) {
      EXPECT_THAT(std::string(denied.message()),
                  HasSubstr("its client, spiffe://test/a, has lost its rights"));
    } else {
      ExpectDenied(denied, "RunCollective needs the role member in tenant a, and spiffe://test/a");
    }
    EXPECT_TRUE(testing::Eventually([&] { return Describe(0).session_count() == 0; }));
  }
}

TEST_F(WorkerAccessTest, ATokenIsAnIdentity) {
  // printf %s a-token-for-a-test | sha256sum
  constexpr char kTokens[] =
      R"({"name": "ci", "sha256": "6da17cb7859700a4778cbba6856739e759c93039b0bdaddfddb5721fdc718e6f"})";
  Start({}, {"--tls-client-certificate-optional"});
  WritePolicy({Rule("token:ci", "a", "member")}, kTokens);
  std::ofstream(folder_ + "/token") << "a-token-for-a-test";
  setenv("COHORT_TLS_CA", ca_.path().c_str(), 1);
  setenv("COHORT_TOKEN_FILE", (folder_ + "/token").c_str(), 1);
  absl::StatusOr<std::shared_ptr<client::WorkerSession>> session;
  ASSERT_TRUE(testing::Eventually([&] {
    client::WorkerSessionOptions options;
    options.address = AddressOf(0, Transport::kTcp);
    session = client::WorkerSession::Connect(options);
    return session.ok();
  })) << session.status();
  const auto group = client::RemoteGroup::Create(JoinOptions(*session, ""));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(Describe(0).ranks(0).tenant(), "a");
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Collective(**group).ok());
  std::ofstream(folder_ + "/unknown") << "another-token";
  setenv("COHORT_TOKEN_FILE", (folder_ + "/unknown").c_str(), 1);
  client::WorkerSessionOptions options;
  options.address = AddressOf(0, Transport::kTcp);
  ExpectDenied(client::WorkerSession::Connect(options).status(), "a client with an unknown token");
}

// With and without an access policy.
TEST_F(WorkerAccessTest, AWorkerCallsNoAddressThatAClientMadeUp) {
  const UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(server.get(), 8), 0);
  ASSERT_EQ(getsockname(server.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string victim = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));

  StartWorker();
  StartWorker({"--allowed-coordinators", victim});
  for (const int worker : {0, 1}) {
    client::RemoteGroupOptions options = JoinOptions(Connect(worker, Transport::kTcp), "");
    options.coordinator = victim;
    options.join_timeout = absl::Seconds(1);
    const absl::Status status = client::RemoteGroup::Create(options).status();
    pollfd called = {server.get(), POLLIN, 0};
    if (worker == 0) {
      ExpectDenied(status,
                   absl::StrCat("this worker calls the coordinator ", coordinator_.address(),
                                ", not ", victim, ", which is not in --allowed-coordinators"));
      EXPECT_EQ(poll(&called, 1, 0), 0) << "the worker has called it";
    } else {
      EXPECT_FALSE(status.ok());
      EXPECT_EQ(poll(&called, 1, 20000), 1) << status;
    }
    options.coordinator = coordinator_.address();
    options.join_timeout = kTimeout;
    const auto joined = client::RemoteGroup::Create(options);
    EXPECT_TRUE(joined.ok()) << joined.status();
  }
}

}  // namespace
}  // namespace cohort
