// The lines of the log that say who did what, and who was denied what.
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/access/role.h"
#include "base/rpc/client_names.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "coordinator/service/testing/access_test_base.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::HasSubstr;

// This process is an operator by its Unix socket, and a member by the loopback address.
class AuditedCallsTest : public AccessTestBase {
 protected:
  void SetUp() override {
    Start(Role::kOperator, "*",
          R"(, {"identity": "anonymous", "tenant": "*", "role": "member"},
              {"identity": "spiffe://prod/a", "tenant": "*", "role": "member"})");
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stranger_ = grpc::CreateCustomChannel(server_->addresses()[1],
                                          grpc::InsecureChannelCredentials(), arguments);
    ::testing::internal::CaptureStdout();
  }

  // Joins a group of one member by the loopback address, as a worker does for `client`.
  v1::Scope JoinAsStranger(const std::string& group, const std::string& client = "") {
    v1::JoinRequest request;
    request.mutable_scope()->set_group(group);
    request.set_member("s0");
    request.set_incarnation(7);
    request.mutable_spec()->set_min_members(1);
    request.mutable_spec()->set_max_members(1);
    SetSeconds(10, request.mutable_wait());
    v1::JoinResponse response;
    grpc::ClientContext context;
    if (!client.empty()) context.AddMetadata(kClientNamesMetadata, EncodeClientNames({client}));
    const grpc::Status status =
        v1::GroupService::NewStub(stranger_)->Join(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    v1::Scope scope;
    scope.set_group(group);
    scope.set_session(response.session());
    return scope;
  }

  const std::string own_ = absl::StrCat("uid:", geteuid());
  std::shared_ptr<grpc::Channel> stranger_;
};

TEST_F(AuditedCallsTest, TheLogSaysWhoDidWhatFromWhere) {
  Form("g", 1);
  v1::EvictRequest evict;
  evict.mutable_scope()->set_group("g");
  evict.set_member("m0");
  CallByGrpc(channel_, "cohort.v1.AdminService/Evict", evict.SerializeAsString());
  CallByGrpc(channel_, "cohort.v1.AdminService/Drain", v1::DrainRequest().SerializeAsString());
  const std::string log = ::testing::internal::GetCapturedStdout();
  const std::string by_self = absl::StrCat(" identity=", own_, " from=");
  EXPECT_THAT(log, HasSubstr("audit call=Join" + by_self));
  EXPECT_THAT(log, HasSubstr("object=\"member m0 of group g\""));
  EXPECT_THAT(log, HasSubstr("audit call=Evict" + by_self));
  EXPECT_THAT(log, HasSubstr("audit call=Drain" + by_self));
}

TEST_F(AuditedCallsTest, AJoinThroughAWorkerNamesBoth) {
  JoinAsStranger("g", "spiffe://prod/a");
  EXPECT_THAT(
      ::testing::internal::GetCapturedStdout(),
      HasSubstr("audit call=Join identity=\"spiffe://prod/a through anonymous\" from=127.0.0.1"));
}

// Each identity has one line a second, so each of the two steals once.
TEST_F(AuditedCallsTest, AStolenSessionHasALine) {
  v1::KeepAliveRequest keep_alive;
  *keep_alive.mutable_scope() = Form("g", 1)[0].scope;
  EXPECT_EQ(
      CallByGrpc(stranger_, "cohort.v1.GroupService/KeepAlive", keep_alive.SerializeAsString())
          .error_code(),
      grpc::StatusCode::PERMISSION_DENIED);
  v1::WatchGroupRequest watch;
  *watch.mutable_scope() = JoinAsStranger("h");
  watch.set_attach(true);
  EXPECT_EQ(CallByGrpc(channel_, "cohort.v1.GroupService/WatchGroup", watch.SerializeAsString())
                .error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr(absl::StrCat("why=\"KeepAlive: the session of member m0 of group g "
                                          "belongs to ",
                                          own_,
                                          ", not to anonymous\" identity=anonymous "
                                          "from=127.0.0.1")));
  EXPECT_THAT(log, HasSubstr(absl::StrCat("why=\"WatchGroup: the session of member s0 of group h "
                                          "belongs to anonymous, not to ",
                                          own_, "\" identity=", own_)));
}

}  // namespace
}  // namespace cohort::coordinator
