// Every method of both protocols with every role. One file, though long: all tests share one
// server, whose policy they change.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "cohort/v1/unique_id.grpc.pb.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"
#include "coordinator/service/testing/access_test_base.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "torchft/lighthouse.grpc.pb.h"

namespace cohort::coordinator {
namespace {

using framed_rpc::TestClient;
using ::testing::HasSubstr;

// Operations of TCPStore.
constexpr int kSet = 1;
constexpr int kGet = 3;
constexpr int kWait = 6;
// No message of any method. A caller with the role learns that; another one does not get that far.
constexpr char kNoMessage[] = "\xff";

class RolesTest : public AccessTestBase, public ::testing::WithParamInterface<Role> {
 protected:
  void SetUp() override { Start(GetParam(), "*"); }
  absl::StatusCode Expected(const MethodInfo& method) const {
    return GetParam() < method.role ? absl::StatusCode::kPermissionDenied
                                    : absl::StatusCode::kInvalidArgument;
  }
};

INSTANTIATE_TEST_SUITE_P(Roles, RolesTest,
                         ::testing::Values(Role::kNone, Role::kObserver, Role::kMember,
                                           Role::kOperator),
                         [](const auto& info) { return std::string(RoleName(info.param)); });

TEST_P(RolesTest, EachMethodByGrpc) {
  int count = 0;
  for (const google::protobuf::FileDescriptor* const file :
       {v1::GroupSpec::descriptor()->file(), v1::SendRequest::descriptor()->file(),
        v1::PutRequest::descriptor()->file(), v1::PublishRequest::descriptor()->file(),
        v1::EvictRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j, ++count) {
        const std::string path =
            absl::StrCat(file->service(i)->full_name(), "/", file->service(i)->method(j)->name());
        const std::optional<Method> method = FindMethod(path);
        ASSERT_TRUE(method.has_value()) << path << " has no row in the table of methods";
        const grpc::Status status = CallByGrpc(channel_, path, kNoMessage);
        EXPECT_EQ(status.error_code(), static_cast<int>(Expected(GetMethod(*method))))
            << path << ": " << status.error_message();
        if (GetParam() >= GetMethod(*method).role) continue;
        EXPECT_THAT(status.error_message(),
                    HasSubstr(absl::StrCat(GetMethod(*method).name, " needs the role ",
                                           RoleName(GetMethod(*method).role), " in ")));
        EXPECT_THAT(
            status.error_message(),
            HasSubstr(absl::StrCat("and uid:", geteuid(),
                                   GetParam() == Role::kNone
                                       ? std::string(" has no role there")
                                       : absl::StrCat(" has the role ", RoleName(GetParam())))));
      }
    }
  }
  EXPECT_EQ(count, static_cast<int>(kMethodCount));
}

TEST_P(RolesTest, TheLighthouseOfTorchft) {
  for (const char* const name : {"Quorum", "Heartbeat"}) {
    const grpc::Status status =
        CallByGrpc(channel_, absl::StrCat("torchft.LighthouseService/", name), kNoMessage);
    EXPECT_EQ(status.error_code(), GetParam() < Role::kMember ? grpc::StatusCode::PERMISSION_DENIED
                                                              : grpc::StatusCode::INVALID_ARGUMENT)
        << name << ": " << status.error_message();
  }
}

TEST_P(RolesTest, EachMethodByFrames) {
  TestClient client(server_->addresses()[0]);
  client.Greet();
  EXPECT_GT(client.methods().size(), 30u);
  uint32_t number = 0;
  for (const std::string& path : client.methods()) {
    client.Send(client.Frame(framed_rpc::Kind::kCall, ++number, path, kNoMessage));
    const auto reply = client.Next();
    ASSERT_TRUE(reply.has_value()) << path;
    EXPECT_EQ(reply->code(), Expected(GetMethod(*FindMethod(path)))) << path << reply->text();
  }
}

class TenantsTest : public AccessTestBase {
 protected:
  // The code with which a call of a tenant ends.
  template <typename Request>
  absl::StatusCode Code(const std::string& tenant, const std::string& method, Request request) {
    request.mutable_scope()->set_tenant(tenant);
    const grpc::Status by_grpc = CallByGrpc(channel_, method, request.SerializeAsString());
    TestClient client(server_->addresses()[0]);
    client.Greet();
    if (std::find(client.methods().begin(), client.methods().end(), method) !=
        client.methods().end()) {
      client.Call(1, method, request);
      EXPECT_EQ(client.Next()->code(), static_cast<absl::StatusCode>(by_grpc.error_code()))
          << method;
    }
    message_ = by_grpc.error_message();
    return static_cast<absl::StatusCode>(by_grpc.error_code());
  }

  // By TCP, without the name of this process's user.
  std::shared_ptr<grpc::Channel> AnonymousChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->addresses()[1], grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  // Returns when calls of the channel in the tenant are refused. The coordinator looks at the
  // policy once a second.
  static void AwaitRefusal(const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& tenant) {
    v1::GetRequest get;
    get.mutable_scope()->set_tenant(tenant);
    get.add_keys("key");
    grpc::Status status;
    for (const absl::Time end = absl::Now() + kTimeout; status.ok() && absl::Now() < end;) {
      status = CallByGrpc(channel, "cohort.v1.StoreService/Get", get.SerializeAsString());
    }
    ASSERT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
  }

  std::string message_;
};

TEST_F(TenantsTest, AMemberOfOneSeesNoOther) {
  Start(Role::kMember, "a");
  v1::PutRequest put;
  put.set_key("key");
  EXPECT_EQ(Code("a", "cohort.v1.StoreService/Put", put), absl::StatusCode::kOk);
  EXPECT_EQ(Code("b", "cohort.v1.StoreService/Put", put), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(message_, absl::StrCat("Put needs the role member in tenant b, and uid:", geteuid(),
                                   " has no role there"));
  v1::ListGroupsRequest list;
  EXPECT_EQ(Code("a", "cohort.v1.GroupService/ListGroups", list), absl::StatusCode::kOk);
  EXPECT_EQ(Code("b", "cohort.v1.GroupService/ListGroups", list),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Code("b", "cohort.v1.AdminService/DumpWaits", v1::DumpWaitsRequest()),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Code("b", "cohort.v1.StoreService/Watch", v1::WatchRequest()),
            absl::StatusCode::kPermissionDenied);
  v1::UploadRequest upload;
  upload.mutable_scope()->set_group("g");
  upload.set_size_bytes(1);
  EXPECT_EQ(Code("b", "cohort.v1.MessagingService/Upload", upload),
            absl::StatusCode::kPermissionDenied);
  // Without a tenant, a request is for the caller's own.
  v1::GetRequest get;
  get.add_keys("key");
  v1::GetResponse response;
  grpc::ClientContext context;
  const grpc::Status status = v1::StoreService::NewStub(channel_)->Get(&context, get, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.values_size(), 1);
}

TEST_F(TenantsTest, AMemberClosesItsOwnGroupAlone) {
  Start(Role::kMember, "*");
  const std::vector<Joined> members = Form("g", 1);
  const auto close = [&](const v1::Scope& scope) {
    v1::CloseGroupRequest request;
    *request.mutable_scope() = scope;
    return Code("", "cohort.v1.GroupService/CloseGroup", request);
  };
  v1::Scope scope;
  scope.set_group("g");
  EXPECT_EQ(close(scope), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(message_, HasSubstr("CloseGroup needs the role operator in tenant default"));
  scope.set_session(std::string(16, 'x'));
  EXPECT_EQ(close(scope), absl::StatusCode::kNotFound);
  grpc::ClientContext context;
  v1::CloseGroupRequest request;
  *request.mutable_scope() = members[0].scope;
  v1::CloseGroupResponse response;
  const grpc::Status status =
      v1::GroupService::NewStub(channel_)->CloseGroup(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(TenantsTest, ClientsOfTcpStoreNeedARoleInTheTenantOfTheirPort) {
  Start(Role::kOperator, "*");  // of this user's Unix sockets
  const std::string& address = server_->addresses()[1];
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const std::string set =
      tcpstore::RequestBytes(kSet, {tcpstore::TextBytes("key"), tcpstore::TextBytes("value")});
  const std::string get = tcpstore::RequestBytes(kGet, {tcpstore::TextBytes("key")});
  EXPECT_TRUE(tcpstore::TestClient(port, tcpstore::Hello() + set).Closed());
  // Before the request is whole, too.
  const std::string half = set.substr(0, set.size() / 2);
  const std::string rest = set.substr(half.size());
  EXPECT_TRUE(tcpstore::TestClient(port, tcpstore::Hello() + half).Closed());
  WritePolicy(absl::StrCat(R"({"identity": "anonymous", "tenant": "tcpstore-)", port,
                           R"(", "role": "member"})"));
  // The coordinator looks at the file once a second.
  std::string value;
  for (const absl::Time end = absl::Now() + kTimeout; value.empty() && absl::Now() < end;) {
    value = tcpstore::TestClient(port, tcpstore::Hello() + half)
                .Ask(rest + get, tcpstore::TextBytes("value").size());
  }
  EXPECT_EQ(value, tcpstore::TextBytes("value"));
}

TEST_F(TenantsTest, TheWholeCoordinatorNeedsARoleInAllTenants) {
  Start(Role::kOperator, "a");
  for (const char* const name : {"Limits", "Drain", "ServerStats"}) {
    const grpc::Status status =
        CallByGrpc(channel_, absl::StrCat("cohort.v1.AdminService/", name), "");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << name;
    EXPECT_THAT(status.error_message(), HasSubstr("in all tenants")) << name;
  }
  v1::EvictRequest evict;
  evict.mutable_scope()->set_group("g");
  evict.set_member("m");
  EXPECT_EQ(Code("a", "cohort.v1.AdminService/Evict", evict), absl::StatusCode::kNotFound);
  EXPECT_EQ(Code("b", "cohort.v1.AdminService/Evict", evict), absl::StatusCode::kPermissionDenied);
}

TEST_F(TenantsTest, CheckAccessSaysWhatARefusalWouldSay) {
  Start(Role::kMember, "a", R"(, {"identity": "token:reader", "tenant": "*", "role": "observer"})");
  const std::unique_ptr<v1::AdminService::Stub> admin = v1::AdminService::NewStub(channel_);
  v1::CheckAccessRequest request;
  v1::CheckAccessResponse response;
  const auto check = [&](const std::string& method, const std::string& tenant) {
    grpc::ClientContext context;
    request.set_method(method);
    request.set_tenant(tenant);
    return admin->CheckAccess(&context, request, &response);
  };
  ASSERT_TRUE(check("join", "a").ok());
  EXPECT_TRUE(response.allowed());
  EXPECT_EQ(response.method(), "cohort.v1.GroupService/Join");
  EXPECT_EQ(response.identity(), absl::StrCat("uid:", geteuid()));
  EXPECT_EQ(response.role(), "member");
  ASSERT_TRUE(check("cohort.v1.AdminService/Evict", "").ok());
  EXPECT_FALSE(response.allowed());
  EXPECT_EQ(response.tenant(), "a");
  EXPECT_EQ(response.needs(), "operator");
  ASSERT_TRUE(check("Drain", "a").ok());
  EXPECT_EQ(response.tenant(), "*");
  EXPECT_EQ(response.role(), "none");
  EXPECT_EQ(check("Nonsense", "a").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.add_names("token:reader");
  EXPECT_EQ(check("Get", "b").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  WritePolicy(absl::StrCat(R"({"identity": "uid:)", geteuid(),
                           R"(", "tenant": "*", "role": "operator"},)",
                           R"({"identity": "token:reader", "tenant": "*", "role": "observer"})"));
  for (const absl::Time end = absl::Now() + kTimeout;
       !check("Get", "b").ok() && absl::Now() < end;) {
  }
  EXPECT_TRUE(response.allowed());
  EXPECT_EQ(response.identity(), "token:reader");
  request.set_names(0, std::string(1, '\0'));
  EXPECT_EQ(check("Get", "b").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TenantsTest, TheOperatorOfOneAsksForTheRightsOfNoOtherClient) {
  Start(Role::kOperator, "a");
  for (const char* const tenant : {"a", "b", ""}) {
    v1::CheckAccessRequest request;
    request.set_method("Get");
    request.set_tenant(tenant);
    const std::string method = "cohort.v1.AdminService/CheckAccess";
    EXPECT_TRUE(CallByGrpc(channel_, method, request.SerializeAsString()).ok()) << tenant;
    request.add_names("token:other");
    EXPECT_EQ(CallByGrpc(channel_, method, request.SerializeAsString()).error_code(),
              grpc::StatusCode::PERMISSION_DENIED)
        << tenant;
  }
}

// The rights end while the watch waits.
TEST_F(TenantsTest, AWatchWithoutRightsDeliversNothing) {
  const std::string other = R"(, {"identity": "anonymous", "tenant": "a", "role": "member"})";
  Start(Role::kMember, "a", other);
  v1::WatchRequest watch;
  watch.mutable_scope()->set_tenant("a");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
  const auto stream = v1::StoreService::NewStub(channel_)->Watch(&context, watch);
  stream->WaitForInitialMetadata();
  WritePolicy(other.substr(1));
  AwaitRefusal(channel_, "a");
  v1::PutRequest put;
  put.mutable_scope()->set_tenant("a");
  put.set_key("secret");
  const grpc::Status status =
      CallByGrpc(AnonymousChannel(), "cohort.v1.StoreService/Put", put.SerializeAsString());
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::WatchResponse delivered;
  EXPECT_FALSE(stream->Read(&delivered)) << delivered.ShortDebugString();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

// A member of "default" that watches its group by framed RPC, and whose rights end.
class FramedWatchRightsTest : public TenantsTest {
 protected:
  void SetUp() override {
    const std::string other =
        R"(, {"identity": "anonymous", "tenant": "default", "role": "operator"})";
    Start(Role::kMember, "default", other);
    const std::vector<Joined> members = Form("job", 2);
    watch_ = std::make_unique<TestClient>(server_->addresses()[0]);
    watch_->Greet();
    v1::WatchGroupRequest request;
    *request.mutable_scope() = members[0].scope;
    request.set_attach(true);
    watch_->Call(1, "cohort.v1.GroupService/WatchGroup", request);
    ASSERT_TRUE(AwaitParked(1, 0));
    WritePolicy(other.substr(1));
    AwaitRefusal(channel_, "default");
  }
  // Expects that the next answer to the watch is its end.
  void ExpectRefused() {
    const std::optional<framed_rpc::TestReply> end = watch_->Next();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->header.kind, framed_rpc::Kind::kReply);
    EXPECT_EQ(end->code(), absl::StatusCode::kPermissionDenied) << end->text();
  }

  std::unique_ptr<TestClient> watch_;
};

TEST_F(FramedWatchRightsTest, AnEventIsNotDelivered) {
  v1::EvictRequest evict;
  evict.mutable_scope()->set_tenant("default");
  evict.mutable_scope()->set_group("job");
  evict.set_member("m1");
  const grpc::Status status =
      CallByGrpc(AnonymousChannel(), "cohort.v1.AdminService/Evict", evict.SerializeAsString());
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectRefused();
}

TEST_F(FramedWatchRightsTest, TheWatchEndsWithoutAnEvent) {
  engine_->EndCallsWithoutRights();
  EXPECT_EQ(engine_->Stats().total.waiter_count, 0);
  ExpectRefused();
}

TEST_F(TenantsTest, AWaitOfTcpStoreEndsWithTheRightsOfItsClient) {
  Start(Role::kOperator, "*", R"(, {"identity": "anonymous", "tenant": "*", "role": "member"})");
  const std::string& address = server_->addresses()[1];
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  tcpstore::TestClient client(
      port, tcpstore::Hello() + tcpstore::RequestBytes(
                                    kWait, {tcpstore::NumberBytes(1), tcpstore::TextBytes("key")}));
  ASSERT_TRUE(AwaitParked(1, 1));
  WritePolicy(
      absl::StrCat(R"({"identity": "uid:)", geteuid(), R"(", "tenant": "*", "role": "operator"})"));
  AwaitRefusal(AnonymousChannel(), "a");
  engine_->EndCallsWithoutRights();
  v1::PutRequest put;
  put.mutable_scope()->set_tenant(absl::StrCat("tcpstore-", port));
  put.set_key("key");
  const grpc::Status status =
      CallByGrpc(channel_, "cohort.v1.StoreService/Put", put.SerializeAsString());
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(client.Closed());
}

// Not even as what other calls bring along.
TEST_F(TenantsTest, AnObserverPutsNothingBack) {
  Start(Role::kObserver, "a", R"(, {"identity": "anonymous", "tenant": "a", "role": "member"})");
  const auto stub = v1::StoreService::NewStub(AnonymousChannel());
  v1::QueuePushRequest push;
  push.mutable_scope()->set_tenant("a");
  push.set_queue("work");
  push.set_value("job");
  v1::QueuePushResponse pushed;
  grpc::ClientContext push_context;
  ASSERT_TRUE(stub->QueuePush(&push_context, push, &pushed).ok());
  v1::QueuePopRequest pop;
  pop.mutable_scope()->set_tenant("a");
  pop.mutable_scope()->set_operation_id("0123456789abcdef");
  pop.set_queue("work");
  v1::QueuePopResponse popped;
  grpc::ClientContext pop_context;
  ASSERT_TRUE(stub->QueuePop(&pop_context, pop, &popped).ok());
  ASSERT_TRUE(popped.found());
  v1::GetRequest get;
  get.add_keys("key");
  get.mutable_scope()->add_acknowledged_receipts(popped.receipt());
  get.mutable_scope()->add_abandoned_operations(pop.scope().operation_id());
  EXPECT_EQ(Code("a", "cohort.v1.StoreService/Get", get), absl::StatusCode::kOk);
  pop.mutable_scope()->clear_operation_id();
  grpc::ClientContext again_context;
  ASSERT_TRUE(stub->QueuePop(&again_context, pop, &popped).ok());
  EXPECT_FALSE(popped.found());
}

TEST_F(TenantsTest, AnUnknownClientHasNoRights) {
  Start(Role::kOperator, "*");
  const grpc::Status status = CallByGrpc(AnonymousChannel(), "cohort.v1.StoreService/Put",
                                         v1::PutRequest().SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("and anonymous has no role there"));
}

}  // namespace
}  // namespace cohort::coordinator
