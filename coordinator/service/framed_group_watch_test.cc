// A member's watch of its group by framed RPC: parts, and the end of the watch.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using framed_rpc::Kind;
using framed_rpc::TestClient;
using framed_rpc::TestReply;
using ::testing::Contains;

constexpr char kWatch[] = "cohort.v1.GroupService/WatchGroup";
constexpr char kPut[] = "cohort.v1.StoreService/Put";
constexpr uint32_t kWatchId = 7;

class FramedGroupWatchTest : public RpcServerTestBase {
 protected:
  void SetUp() override {
    RpcServerTestBase::SetUp();
    members_ = Form("job", 2);
    client_ = std::make_unique<TestClient>(server_->addresses()[0]);
    client_->Greet();
  }

  // Watches as member 0, from now on.
  void Watch() {
    v1::WatchGroupRequest request;
    *request.mutable_scope() = members_[0].scope;
    request.set_attach(true);
    client_->Call(kWatchId, kWatch, request);
  }
  void AskForNext() { client_->Send(client_->Frame(Kind::kNext, kWatchId, "", "")); }
  v1::WatchGroupResponse ReadPart() {
    const std::optional<TestReply> part = client_->Next();
    v1::WatchGroupResponse response;
    EXPECT_TRUE(part.has_value());
    if (!part.has_value()) return response;
    EXPECT_EQ(part->header.kind, Kind::kPart) << part->text();
    EXPECT_EQ(part->header.call, kWatchId);
    EXPECT_TRUE(response.ParseFromString(part->body));
    return response;
  }
  // A reply that comes shows that no part has come before it.
  void ExpectNoPart(uint32_t call) {
    v1::PutRequest request;
    request.set_key("k");
    client_->Call(call, kPut, request);
    const std::optional<TestReply> reply = client_->Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->header.kind, Kind::kReply);
    EXPECT_EQ(reply->header.call, call);
  }
  void ReportError(const std::string& detail) {
    v1::ReportErrorRequest request;
    *request.mutable_scope() = members_[1].scope;
    request.set_detail(detail);
    v1::ReportErrorResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::GroupService::NewStub(channel_)->ReportError(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  v1::Member GetMember(const std::string& name) {
    v1::GetGroupRequest request;
    request.mutable_scope()->set_group("job");
    v1::GetGroupResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::GroupService::NewStub(channel_)->GetGroup(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    for (const v1::Member& member : response.group().members()) {
      if (member.name() == name) return member;
    }
    return v1::Member();
  }
  bool BecomesLost(const std::string& name) {
    const absl::Time end = absl::Now() + kTimeout;
    while (absl::Now() < end) {
      if (GetMember(name).state() == v1::MEMBER_STATE_LOST) return true;
    }
    return false;
  }

  std::vector<Joined> members_;
  std::unique_ptr<TestClient> client_;
};

std::vector<std::string> DetailsOf(const v1::WatchGroupResponse& response) {
  std::vector<std::string> details;
  for (const v1::GroupEvent& event : response.events()) details.push_back(event.cause().detail());
  return details;
}

TEST_F(FramedGroupWatchTest, APartComesAfterTheClientHasAskedForIt) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  EXPECT_TRUE(GetMember("m0").attached());
  ReportError("first");
  EXPECT_THAT(DetailsOf(ReadPart()), Contains("first"));
  ReportError("second");
  ExpectNoPart(8);
  AskForNext();
  EXPECT_THAT(DetailsOf(ReadPart()), Contains("second"));
}

TEST_F(FramedGroupWatchTest, ARequestForAPartThatIsOnItsWayIsIdle) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  for (int i = 0; i < 3; ++i) AskForNext();
  client_->Send(client_->Frame(Kind::kNext, 99, "", ""));
  ExpectNoPart(8);
  ReportError("first");
  EXPECT_THAT(DetailsOf(ReadPart()), Contains("first"));
  ExpectNoPart(9);
}

TEST_F(FramedGroupWatchTest, EndsWithTheGroup) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  v1::CloseGroupRequest close;
  *close.mutable_scope() = members_[1].scope;
  v1::CloseGroupResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::GroupService::NewStub(channel_)->CloseGroup(&context, close, &response).ok());
  const v1::WatchGroupResponse last = ReadPart();
  ASSERT_GT(last.events_size(), 0);
  EXPECT_EQ(last.events(last.events_size() - 1).kind(), v1::GROUP_EVENT_KIND_CLOSED);
  const std::optional<TestReply> end = client_->Next();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->header.kind, Kind::kReply);
  EXPECT_EQ(end->code(), absl::StatusCode::kOk);
  EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
}

TEST_F(FramedGroupWatchTest, AnUnknownGroupIsRefused) {
  members_[0].scope.set_group("no-such-group");
  Watch();
  const std::optional<TestReply> refused = client_->Next();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), absl::StatusCode::kNotFound) << refused->text();
  EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
}

TEST_F(FramedGroupWatchTest, ACancelledWatchNoLongerStandsForItsMember) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  client_->Send(client_->Frame(Kind::kCancel, kWatchId, "", ""));
  const std::optional<TestReply> end = client_->Next();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
  EXPECT_TRUE(BecomesLost("m0"));
}

TEST_F(FramedGroupWatchTest, ACancelAfterAPartEndsTheWatch) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  ReportError("first");
  ReadPart();
  client_->Send(client_->Frame(Kind::kCancel, kWatchId, "", ""));
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
  EXPECT_TRUE(BecomesLost("m0"));
}

TEST_F(FramedGroupWatchTest, AMemberWithoutItsConnectionIsLost) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  client_->Close();
  EXPECT_TRUE(BecomesLost("m0"));
  EXPECT_EQ(GetMember("m1").state(), v1::MEMBER_STATE_ACTIVE);
}

TEST_F(FramedGroupWatchTest, ShutdownEndsIt) {
  Watch();
  ASSERT_TRUE(AwaitParked(1, 0));
  std::thread stopper([this] { server_->Shutdown(absl::Seconds(10)); });
  const std::optional<TestReply> end = client_->Next();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kUnavailable) << end->text();
  stopper.join();
}

class FramedGroupWatchPingTest : public FramedGroupWatchTest {
 protected:
  void SetUp() override {
    server_options_.ping_timeout = absl::Milliseconds(400);
    FramedGroupWatchTest::SetUp();
  }
};

TEST_F(FramedGroupWatchPingTest, AClientThatNoLongerAsksIsGone) {
  Watch();
  const absl::Time start = absl::Now();
  // Empty parts are pings: a client that answers them stays.
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(ReadPart().events_size(), 0);
    AskForNext();
  }
  EXPECT_GT(absl::Now() - start, absl::Milliseconds(800));
  ReadPart();
  EXPECT_FALSE(client_->Next().has_value()) << "the connection stayed";
  EXPECT_TRUE(BecomesLost("m0"));
}

}  // namespace
}  // namespace cohort::coordinator
