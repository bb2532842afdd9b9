// Framed RPC as a client on a bare socket sees it, beside gRPC on the same port.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using framed_rpc::Kind;
using framed_rpc::TestClient;
using testing::HasSubstr;

constexpr char kPut[] = "cohort.v1.StoreService/Put";
constexpr char kGet[] = "cohort.v1.StoreService/Get";
constexpr char kRange[] = "cohort.v1.StoreService/Range";
constexpr char kBarrier[] = "cohort.v1.MessagingService/Barrier";

v1::PutRequest Put(const std::string& key, const std::string& value) {
  v1::PutRequest request;
  request.set_key(key);
  request.set_value(value);
  return request;
}

v1::GetRequest Get(const std::string& key, int64_t wait_s = 0) {
  v1::GetRequest request;
  request.add_keys(key);
  if (wait_s > 0) SetSeconds(wait_s, request.mutable_wait());
  return request;
}

class FramedRpcTest : public RpcServerTestBase {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/framed-XXXXXX";  // a socket's path has to be short
    ASSERT_NE(mkdtemp(folder), nullptr);
    path_ = absl::StrCat(folder, "/socket");
    server_options_.listen = {"127.0.0.1:0", absl::StrCat("unix:", path_)};
    server_options_.max_message_bytes = 256 << 10;
    RpcServerTestBase::SetUp();
    client_ = std::make_unique<TestClient>(server_->addresses()[0]);
  }

  void TearDown() override {
    RpcServerTestBase::TearDown();
    server_.reset();
    rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }

  int64_t waiters() { return engine_->Stats().total.waiter_count; }
  bool AwaitNobody() {
    const absl::Time end = absl::Now() + kTimeout;
    while ((waiters() > 0 || dispatcher_->active() > 0) && absl::Now() < end) {
      std::this_thread::yield();
    }
    return waiters() == 0 && dispatcher_->active() == 0;
  }

  std::string path_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(FramedRpcTest, CallsHaveTheAnswersThatGrpcGives) {
  client_->Greet();
  client_->Call(1, kPut, Put("k", "v"));
  const auto put = client_->Next();
  ASSERT_TRUE(put.has_value());
  EXPECT_EQ(put->header.call, 1);
  EXPECT_EQ(put->code(), absl::StatusCode::kOk);
  grpc::ClientContext context;
  v1::GetResponse by_grpc;
  ASSERT_TRUE(v1::StoreService::NewStub(channel_)->Get(&context, Get("k"), &by_grpc).ok());
  client_->Call(2, kGet, Get("k"));
  v1::GetResponse by_framed_rpc;
  ASSERT_TRUE(by_framed_rpc.ParseFromString(client_->Next()->body));
  EXPECT_EQ(by_framed_rpc.SerializeAsString(), by_grpc.SerializeAsString());
  EXPECT_EQ(by_framed_rpc.values(0).value(), "v");

  v1::BarrierRequest unknown_group;
  unknown_group.mutable_scope()->set_group("no-such-group");
  grpc::ClientContext second;
  v1::BarrierResponse ignored;
  const grpc::Status status =
      v1::MessagingService::NewStub(channel_)->Barrier(&second, unknown_group, &ignored);
  client_->Call(3, kBarrier, unknown_group);
  const auto refused = client_->Next();
  EXPECT_EQ(static_cast<int>(refused->code()), static_cast<int>(status.error_code()));
  EXPECT_EQ(refused->text(), status.error_message());
  EXPECT_EQ(refused->body.substr(refused->header.extra), status.error_details());
}

TEST_F(FramedRpcTest, NumberedSendsOfSeveralConnectionsAreReadInOrder) {
  constexpr int kSends = 200;
  const std::vector<Joined> members = Form("job", 2);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->addresses()[0]));
    clients.back()->Greet();
  }
  // The last comes first, so that all but number 1 have to wait.
  for (int order = kSends; order > 0; --order) {
    v1::SendRequest request;
    *request.mutable_scope() = members[0].scope;
    request.set_destination(1);
    request.set_order(order);
    request.mutable_payload()->set_inline_(absl::StrCat(order));
    clients[order % 4]->Call(static_cast<uint32_t>(order), "cohort.v1.MessagingService/Send",
                             request);
  }
  for (int i = 0; i < kSends; ++i) {
    const auto reply = clients[i % 4]->Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->code(), absl::StatusCode::kOk) << reply->text();
  }
  client_->Greet();
  for (int order = 1; order <= kSends; ++order) {
    v1::ReceiveRequest request;
    *request.mutable_scope() = members[1].scope;
    client_->Call(static_cast<uint32_t>(order), "cohort.v1.MessagingService/Receive", request);
    const auto reply = client_->Next();
    ASSERT_TRUE(reply.has_value());
    v1::ReceiveResponse response;
    ASSERT_TRUE(response.ParseFromString(reply->body));
    EXPECT_EQ(response.payload().inline_(), absl::StrCat(order));
  }
}

TEST_F(FramedRpcTest, MethodsWithOneAnswerAboutOneGroupAreThere) {
  client_->Greet();
  const std::set<std::string> methods(client_->methods().begin(), client_->methods().end());
  for (size_t i = 0; i < kMethodCount; ++i) {
    const MethodInfo& info = GetMethod(static_cast<Method>(i));
    const bool elsewhere = info.method == Method::kUpload || info.method == Method::kDownload ||
                           info.method == Method::kWatch || info.method == Method::kListGroups ||
                           info.method == Method::kDumpWaits;
    EXPECT_EQ(methods.count(absl::StrCat(info.service, "/", info.name)), elsewhere ? 0 : 1)
        << info.name;
  }
}

TEST_F(FramedRpcTest, AnyPiecesAndAnyTransport) {
  for (const std::string& address : server_->addresses()) {
    TestClient client(address);
    for (const char byte : framed_rpc::kPreface) client.Send(absl::string_view(&byte, 1));
    client.AwaitGreeting();
    const std::string frame = client.Frame(Kind::kCall, 7, kPut, Put("k", "v").SerializeAsString());
    for (const char byte : frame) client.Send(absl::string_view(&byte, 1));
    EXPECT_EQ(client.Next()->code(), absl::StatusCode::kOk);
  }
}

TEST_F(FramedRpcTest, ARequestThatIsNoMessageIsRejected) {
  client_->Greet();
  client_->Send(client_->Frame(Kind::kCall, 1, kPut, "\xff\xff not a message"));
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kInvalidArgument);
  client_->Call(2, kPut, Put("k", "v"));
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kOk);
}

TEST_F(FramedRpcTest, ACancelledCallIsForgotten) {
  client_->Greet();
  client_->Call(1, kGet, Get("never", 60));
  ASSERT_TRUE(AwaitParked(1, 0));
  client_->Send(client_->Frame(Kind::kCancel, 1, "", ""));
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(AwaitNobody());
  client_->Send(client_->Frame(Kind::kCancel, 1, "", ""));  // for the second time
  client_->Call(1, kPut, Put("never", "v"));
  EXPECT_EQ(client_->Next()->header.call, 1);
}

TEST_F(FramedRpcTest, AClosedConnectionEndsItsCalls) {
  client_->Greet();
  for (uint32_t call = 1; call <= 400; ++call) client_->Call(call, kGet, Get("never", 60));
  ASSERT_TRUE(AwaitParked(100, 0));
  client_->Close();
  EXPECT_TRUE(AwaitNobody());
}

// An answer has copies of small values, so it is memory of its connection alone.
class UnreadTest : public FramedRpcTest {
 protected:
  void SetUp() override {
    FramedRpcTest::SetUp();
    client_->Greet();
    for (uint32_t i = 0; i < 200; ++i) {
      client_->Call(i, kPut, Put(absl::StrCat("key", i), std::string(1024, 'x')));
      ASSERT_EQ(client_->Next()->code(), absl::StatusCode::kOk);
    }
  }
  // Asks until no more is taken, and reads nothing.
  void AskForMore() {
    v1::RangeRequest range;
    range.set_page_size(1000);
    const std::string request = client_->Frame(Kind::kCall, 2, kRange, range.SerializeAsString());
    std::string many;
    while (many.size() < (64 << 10)) many += request;
    int sent = 0;
    while (sent < 1024 && client_->TrySend(many)) ++sent;
    EXPECT_LT(sent, 1024);
  }
  int64_t unread() { return engine_->account().held(MemoryKind::kOutput); }
};

TEST_F(UnreadTest, AnswersAreChargedUntilTheConnectionEnds) {
  AskForMore();
  EXPECT_GT(unread(), 4 << 20);
  EXPECT_LT(unread(), 16 << 20);
  client_->Close();
  const absl::Time end = absl::Now() + kTimeout;
  while (unread() != 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(unread(), 0);
}

// The values of a round are shared by the answers to all members.
TEST_F(UnreadTest, ResultsOfRoundsAreChargedUntilTheConnectionEnds) {
  const std::vector<Joined> members = Form("job", 1);
  const int64_t before = unread();
  v1::AllGatherRequest request;
  *request.mutable_scope() = members[0].scope;
  request.mutable_round()->set_name("gather");
  request.mutable_payload()->set_inline_(std::string(60000, 'v'));
  client_->Call(2, "cohort.v1.MessagingService/AllGather", request);
  const auto first = client_->Next();
  ASSERT_TRUE(first.has_value());
  ASSERT_EQ(first->code(), absl::StatusCode::kOk) << first->text();
  ASSERT_GT(first->body.size(), 60000u);
  // Each is answered at once, and not read: the sockets take some of it.
  std::vector<std::string> calls;
  for (uint32_t call = 1; call <= 400; ++call) {
    calls.push_back(client_->Frame(Kind::kCall, call, "cohort.v1.MessagingService/AllGather",
                                   request.SerializeAsString()));
  }
  for (const std::string& call : calls) {
    if (!client_->TrySend(call)) break;
  }
  const absl::Time end = absl::Now() + kTimeout;
  while (unread() < before + (2 << 20) && absl::Now() < end) std::this_thread::yield();
  EXPECT_GE(unread(), before + (2 << 20));
  client_->Close();
  while (unread() != 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(unread(), 0);
}

TEST_F(UnreadTest, AnswersAboveTheLimitEndTheConnectionAlone) {
  Limits limits = engine_->limits();
  limits.max_bytes_held = engine_->account().limited() + (2 << 20);
  engine_->SetLimits(limits);
  AskForMore();
  int answers = 0;
  while (client_->Next().has_value()) ++answers;
  // The client called thousands of times; the rest of the written bytes were in the sockets.
  EXPECT_LT(answers, 500) << "the connection was not closed";
  EXPECT_LE(engine_->account().limited(), limits.max_bytes_held);
  TestClient other(server_->addresses()[0]);
  other.Greet();
  other.Call(1, kGet, Get("key0"));
  EXPECT_EQ(other.Next()->code(), absl::StatusCode::kOk);
}

TEST_F(FramedRpcTest, ShutdownAnswersWaitingCalls) {
  client_->Greet();
  for (uint32_t call = 1; call <= 50; ++call) client_->Call(call, kGet, Get("never", 60));
  ASSERT_TRUE(AwaitParked(50, 0));
  std::thread stopper([this] { server_->Shutdown(absl::Seconds(10)); });
  for (int i = 0; i < 50; ++i) {
    const auto reply = client_->Next();
    ASSERT_TRUE(reply.has_value()) << i;
    EXPECT_EQ(reply->code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_FALSE(client_->Next().has_value());
  stopper.join();
}

TEST_F(FramedRpcTest, OthersOnThePortAreServedOrSentAway) {
  // Neither an HTTP client nor a client with half of the preface disturbs.
  TestClient http(server_->addresses()[0]);
  http.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  TestClient half(server_->addresses()[0]);
  half.Send(framed_rpc::kPreface.substr(0, 3));
  client_->Greet();
  grpc::ClientContext context;
  v1::PutResponse response;
  EXPECT_TRUE(v1::StoreService::NewStub(channel_)->Put(&context, Put("k", "v"), &response).ok());
  half.Send(framed_rpc::kPreface.substr(3));
  half.AwaitGreeting();
}

TEST_F(FramedRpcTest, ASocketFileIsTakenOverFromTheDeadAlone) {
  RpcServerOptions options;
  options.listen = {absl::StrCat("unix:", path_)};
  const auto second = RpcServer::Start(options, *dispatcher_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another server"));
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_NE(access(path_.c_str(), F_OK), 0) << "the file goes with its server";
  // A killed server leaves a socket file without a listener.
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path_.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  close(dead);
  const auto third = RpcServer::Start(options, *dispatcher_);
  EXPECT_TRUE(third.ok()) << third.status();
}

class NoFramedRpcTest : public RpcServerTestBase {
 protected:
  void SetUp() override {
    server_options_.framed_rpc_threads = 0;
    RpcServerTestBase::SetUp();
  }
};

TEST_F(NoFramedRpcTest, GrpcAnswersInstead) {
  TestClient client(server_->addresses()[0]);
  client.Send(framed_rpc::kPreface);
  EXPECT_NE(client.Take(framed_rpc::kPreface.size()), framed_rpc::kPreface);  // HTTP/2's settings
  grpc::ClientContext context;
  v1::PutResponse response;
  EXPECT_TRUE(v1::StoreService::NewStub(channel_)->Put(&context, Put("k", "v"), &response).ok());
}

}  // namespace
}  // namespace cohort::coordinator
