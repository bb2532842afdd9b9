// One file, though long: all tests write frames to one server by hand, and read its answers.
#include "base/framed_rpc/server/framed_rpc_server.h"

#include <sys/socket.h>
#include <time.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/peer/listener_peer.h"
#include "base/rpc/client_names.h"
#include "base/threads/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kEcho[] = "test.Service/Echo";
constexpr char kPark[] = "test.Service/Park";
constexpr size_t kMaxMessageBytes = 256 << 10;
constexpr int kMaxCalls = 1000;

absl::Duration ProcessorTime() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Answers Echo with the request, and Park when the test asks for it.
class TestHandler final : public CallHandler {
 public:
  class Unread final : public UnreadCharge {
   public:
    explicit Unread(TestHandler& handler) : handler_(handler) {}
    ~Unread() override { handler_.unread -= bytes_; }
    absl::Status Set(int64_t bytes) override {
      if (bytes > handler_.max_unread) return absl::ResourceExhaustedError("max_unread");
      handler_.unread += bytes - std::exchange(bytes_, bytes);
      return absl::OkStatus();
    }

   private:
    TestHandler& handler_;
    int64_t bytes_ = 0;
  };

  absl::Status Start(const Request& request) override {
    ++started;
    {
      MutexLock lock(&mutex_);
      last_time_left_ = request.time_left;
    }
    auto call = std::make_shared<Call>(request, *this);
    if (absl::Status added = request.connection.Add(call); !added.ok()) return added;
    if (request.method == 1) {
      if (checks_calls) request.connection.CheckEvery(absl::Milliseconds(1));
      MutexLock lock(&mutex_);
      parked_[request.call] = call;
      return absl::OkStatus();
    }
    const auto bytes = std::make_shared<const std::string>(
        answer_bytes > 0 ? std::string(answer_bytes, 'x') : std::string(request.message));
    call->Answer(absl::OkStatus(), {SharedBytes{bytes, *bytes, true}}, nullptr);
    return absl::OkStatus();
  }

  std::unique_ptr<UnreadCharge> ChargeUnread(PeerAccess*) override {
    return std::make_unique<Unread>(*this);
  }

  // The time to the deadline of the last call that started.
  absl::Duration last_time_left() {
    MutexLock lock(&mutex_);
    return last_time_left_;
  }
  // Answers all parked calls in one batch.
  void AnswerParked(const absl::Status& status) {
    std::map<uint32_t, std::shared_ptr<Call>> parked;
    {
      MutexLock lock(&mutex_);
      parked.swap(parked_);
    }
    ReplyBatch batch;
    for (auto& [id, call] : parked) call->Answer(status, {}, &batch);
    batch.Flush();
  }
  bool AwaitParked(size_t count) {
    const auto parked = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return parked_.size() == count; };
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&parked), absl::Seconds(20));
  }

  std::atomic<int64_t> started{0};
  std::atomic<int64_t> unread{0};
  std::atomic<int64_t> max_unread{int64_t{1} << 40};
  // Echo answers so many bytes of its own; 0: the request.
  std::atomic<size_t> answer_bytes{0};
  // The connection looks once a millisecond whether parked calls are overdue.
  std::atomic<bool> checks_calls{false};
  std::atomic<bool> calls_are_overdue{true};

 private:
  class Call final : public ServerCall {
   public:
    Call(const Request& request, TestHandler& handler)
        : ServerCall(request, Clock::Steady().Now()), handler_(handler) {}
    void Answer(const absl::Status& status, const std::vector<SharedBytes>& message,
                ReplyBatch* batch) {
      SendReply(status, message, batch);
    }
    bool Cancel() override {
      MutexLock lock(&handler_.mutex_);
      return handler_.parked_.erase(id()) > 0;
    }
    bool Overdue() override { return handler_.calls_are_overdue; }

   private:
    TestHandler& handler_;
  };

  Mutex mutex_;
  absl::Duration last_time_left_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::shared_ptr<Call>> parked_ ABSL_GUARDED_BY(mutex_);
};

class FramedRpcServerTest : public ::testing::Test {
 protected:
  FramedRpcServerTest() : handler_(std::make_shared<TestHandler>()), server_(Make(handler_)) {
    client_ = Connect();
  }

  static std::unique_ptr<Server> Make(std::shared_ptr<TestHandler> handler) {
    ServerOptions options;
    options.max_message_bytes = kMaxMessageBytes;
    options.max_concurrent_calls = kMaxCalls;
    return std::make_unique<Server>(options, std::vector<std::string>{kEcho, kPark},
                                    std::move(handler));
  }
  std::unique_ptr<TestClient> Connect(ListenerPeer peer = {}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    server_->Adopt(ends[0], std::move(peer));
    auto client = std::make_unique<TestClient>(ends[1]);
    client->Greet();
    return client;
  }
  void Call(uint32_t id, const std::string& method, const std::string& message = "") {
    client_->Send(client_->Frame(Kind::kCall, id, method, message));
  }
  void Cancel(uint32_t id) { client_->Send(client_->Frame(Kind::kCancel, id, "", "")); }
  bool AwaitUnread(int64_t bytes) {
    const Instant end = Clock::Steady().Now() + absl::Seconds(20);
    while (handler_->unread != bytes && Clock::Steady().Now() < end) std::this_thread::yield();
    return handler_->unread == bytes;
  }
  // Calls until the server takes no more, and reads no answer.
  void CallWithoutReading() {
    const std::string call = client_->Frame(Kind::kCall, 1, kEcho, std::string(200 << 10, 'x'));
    int sent = 0;
    while (sent < 1024 && client_->TrySend(call)) ++sent;
    EXPECT_LT(sent, 1024);
  }

  const std::shared_ptr<TestHandler> handler_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(FramedRpcServerTest, TheGreetingNamesTheMethods) {
  EXPECT_THAT(client_->methods(), ElementsAre(kEcho, kPark));
}

TEST_F(FramedRpcServerTest, ManyCallsAtOnceAreEachAnswered) {
  std::string bytes;
  for (uint32_t call = 1; call <= 1000; ++call) {
    bytes += client_->Frame(Kind::kCall, call, kEcho, absl::StrCat(call));
  }
  client_->Send(bytes);
  std::set<uint32_t> answered;
  for (int i = 0; i < 1000; ++i) {
    const auto reply = client_->Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->code(), absl::StatusCode::kOk);
    EXPECT_EQ(reply->body, absl::StrCat(reply->header.call));
    EXPECT_TRUE(answered.insert(reply->header.call).second);
  }
}

TEST_F(FramedRpcServerTest, BadRequestsAreAnsweredAndTheConnectionGoesOn) {
  Call(2, kEcho, std::string(kMaxMessageBytes + 1, 'x'));
  const auto large = client_->Next();
  EXPECT_EQ(large->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(large->text(), HasSubstr("max_message_bytes"));
  std::string unknown = client_->Frame(Kind::kCall, 3, kEcho, "");
  unknown[10] = unknown[11] = '\x7f';
  client_->Send(unknown);
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kUnimplemented);
  // One number for two calls in flight.
  Call(4, kPark);
  ASSERT_TRUE(handler_->AwaitParked(1));
  Call(4, kEcho);
  EXPECT_THAT(client_->Next()->text(), HasSubstr("twice"));
  // Errors do not end the call that has the number.
  Call(4, kEcho, std::string(kMaxMessageBytes + 1, 'x'));
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(handler_->AwaitParked(1));
  Cancel(4);
  EXPECT_EQ(client_->Next()->code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(handler_->AwaitParked(0));
  Call(5, kEcho);
  EXPECT_EQ(client_->Next()->header.call, 5);
}

TEST_F(FramedRpcServerTest, TheHandlerLearnsTheTimeThatTheCallerHas) {
  Call(1, kEcho);
  ASSERT_TRUE(client_->Next().has_value());
  EXPECT_EQ(handler_->last_time_left(), absl::InfiniteDuration());
  std::string frame = client_->Frame(Kind::kCall, 2, kEcho, "");
  frame.replace(12, 4, std::string("\xdc\x05\0\0", 4));
  client_->Send(frame);
  ASSERT_TRUE(client_->Next().has_value());
  EXPECT_EQ(handler_->last_time_left(), absl::Milliseconds(1500));
}

TEST_F(FramedRpcServerTest, TheListenerLearnsOfTheFirstCall) {
  const ListenerPeer peer;
  const auto client = Connect(peer);
  // Neither a token nor a call that the server refuses by its header counts.
  client->Send(client->Frame(Kind::kToken, 0, "", "a token"));
  client->Send(client->Frame(Kind::kCall, 1, kEcho, std::string(kMaxMessageBytes + 1, 'x')));
  ASSERT_TRUE(client->Next().has_value());
  EXPECT_FALSE(peer.has_request->load());
  client->Send(client->Frame(Kind::kCall, 2, kEcho, ""));
  ASSERT_TRUE(client->Next().has_value());
  EXPECT_TRUE(peer.has_request->load());
}

TEST_F(FramedRpcServerTest, AConnectionNamesItsClientOnce) {
  const auto client = Connect(ListenerPeer());
  client->Send(client->Frame(Kind::kClient, 0, "", EncodeClientNames({"spiffe://a"})));
  client->Send(client->Frame(Kind::kCall, 1, kEcho, ""));
  ASSERT_TRUE(client->Next().has_value());
  client->Send(client->Frame(Kind::kClient, 0, "", EncodeClientNames({"spiffe://b"})));
  EXPECT_FALSE(client->Next().has_value());
}

TEST_F(FramedRpcServerTest, NamesOfAClientHaveALimit) {
  const auto client = Connect(ListenerPeer());
  client->Send(client->Frame(Kind::kClient, 0, "", std::string(kMaxClientNamesBytes + 1, 'a')));
  EXPECT_FALSE(client->Next().has_value());
}

TEST_F(FramedRpcServerTest, IncompleteRequestsHaveALimitOverAllConnections) {
  constexpr int64_t kLimit = 300000;
  ListenerPeer peer;
  peer.incoming = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", kLimit);
  const auto await_held = [&](const std::function<bool(int64_t)>& enough) {
    const Instant end = Clock::Steady().Now() + absl::Seconds(20);
    while (!enough(peer.incoming->held()) && Clock::Steady().Now() < end) std::this_thread::yield();
    return enough(peer.incoming->held());
  };
  const auto first = Connect(peer);
  const std::string small = first->Frame(Kind::kCall, 1, kEcho, std::string(50000, 'x'));
  first->Send(small.substr(0, 100));
  ASSERT_TRUE(await_held([](int64_t held) { return held > 0; }));
  EXPECT_TRUE(await_held([](int64_t held) { return held <= 4096; }))
      << "few bytes do not keep a large buffer: " << peer.incoming->held();
  first->Send(small.substr(100, 40000));
  ASSERT_TRUE(await_held([](int64_t held) { return held >= 40000; }));

  const auto second = Connect(peer);
  const std::string large = second->Frame(Kind::kCall, 2, kEcho, std::string(250000, 'y'));
  second->Send(large.substr(0, 240000));
  const auto refused = second->Next();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused->text(), HasSubstr("no room for a request of 250000 bytes"));
  EXPECT_THAT(refused->text(), HasSubstr("max_incoming_bytes (300000)"));
  // The rest of the refused request is skipped.
  second->Send(large.substr(240000) + second->Frame(Kind::kCall, 3, kEcho, "next"));
  EXPECT_EQ(second->Next()->body, "next");

  first->Send(small.substr(40100));
  EXPECT_EQ(first->Next()->body, std::string(50000, 'x'));
  EXPECT_TRUE(await_held([](int64_t held) { return held == 0; })) << peer.incoming->held();
}

TEST_F(FramedRpcServerTest, CallsAboveTheLimitAreRefused) {
  for (uint32_t call = 1; call <= kMaxCalls; ++call) Call(call, kPark);
  ASSERT_TRUE(handler_->AwaitParked(kMaxCalls));
  Call(kMaxCalls + 1, kEcho);
  const auto refused = client_->Next();
  EXPECT_EQ(refused->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused->text(), HasSubstr("max_concurrent_streams (1000)"));
}

TEST_F(FramedRpcServerTest, OtherFramesEndTheConnectionAndItsCalls) {
  for (const Kind kind : {Kind::kHello, Kind::kReply, static_cast<Kind>(77)}) {
    client_ = Connect();
    Call(1, kPark);
    ASSERT_TRUE(handler_->AwaitParked(1));
    client_->Send(client_->Frame(kind, 1, "", ""));
    EXPECT_FALSE(client_->Next().has_value());
    EXPECT_TRUE(handler_->AwaitParked(0));
  }
}

TEST_F(FramedRpcServerTest, AClientOverALimitLearnsItInItsLastReply) {
  ServerOptions options;
  options.limits.max_idle_frames_per_second = 10;
  server_ = std::make_unique<Server>(options, std::vector<std::string>{kEcho, kPark}, handler_);
  std::atomic<int> offences{0};
  ListenerPeer peer;
  peer.on_offence = [&offences](const absl::Status&) { ++offences; };
  client_ = Connect(std::move(peer));
  std::string cancels;  // of calls that were never made
  for (uint32_t call = 1; call <= 100; ++call) {
    cancels += client_->Frame(Kind::kCancel, call, "", "");
  }
  client_->Send(cancels);
  const auto last = client_->Next();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(last->text(), HasSubstr("max_idle_frames_per_second (10)"));
  EXPECT_FALSE(client_->Next().has_value());
  EXPECT_EQ(offences, 1);
  server_->Stop(absl::Seconds(10));
}

// A client may cancel a call while the answer is on its way.
TEST_F(FramedRpcServerTest, EachCallExcusesFourFramesThatComeTooLate) {
  ServerOptions options;
  options.limits.max_idle_frames_per_second = 10;
  server_ = std::make_unique<Server>(options, std::vector<std::string>{kEcho, kPark}, handler_);
  client_ = Connect();
  for (uint32_t call = 1; call <= 200; ++call) {
    Call(call, kEcho);
    const auto reply = client_->Next();
    ASSERT_TRUE(reply.has_value()) << "call " << call;
    ASSERT_EQ(reply->code(), absl::StatusCode::kOk) << reply->text();
    for (int late = 0; late < 4; ++late) Cancel(call);
  }
  client_->Close();
  server_->Stop(absl::Seconds(10));
}

// One connection has no request, and the tenant of the other is over its rate.
TEST_F(FramedRpcServerTest, ConnectionsThatWaitTakeNoProcessorTime) {
  const std::string path = ::testing::TempDir() + "/policy.json";
  std::ofstream(path) << R"({"rules": []})";
  ListenerPeer peer;
  peer.access = std::make_shared<PeerAccess>(AccessPolicy::Load(path).value(),
                                             std::vector<std::string>{"client"});
  const auto paused = Connect(peer);
  for (TestClient* const client : {client_.get(), paused.get()}) {
    client->Send(client->Frame(Kind::kCall, 1, kEcho, ""));
    ASSERT_TRUE(client->Next().has_value());
  }
  const Instant end = Clock::Steady().Now() + absl::Milliseconds(500);
  peer.access->PauseReading(end);
  const absl::Duration before = ProcessorTime();
  paused->Send(paused->Frame(Kind::kCall, 2, kEcho, ""));
  ASSERT_TRUE(paused->Next().has_value());
  EXPECT_LT(ProcessorTime() - before, absl::Milliseconds(100));
  EXPECT_GE(Clock::Steady().Now(), end);
}

TEST_F(FramedRpcServerTest, ACancelledCallHasOneReply) {
  Call(1, kPark);
  ASSERT_TRUE(handler_->AwaitParked(1));
  Cancel(1);
  const auto reply = client_->Next();
  EXPECT_EQ(reply->header.call, 1);
  EXPECT_EQ(reply->code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(handler_->AwaitParked(0));
  Cancel(1);  // for the second time
  // A cancellation that comes after the answer has no reply.
  Call(3, kEcho);
  Cancel(3);
  EXPECT_EQ(client_->Next()->header.call, 3);
  Call(2, kEcho);
  EXPECT_EQ(client_->Next()->header.call, 2);
}

TEST_F(FramedRpcServerTest, AClosedConnectionCancelsItsCalls) {
  for (uint32_t call = 1; call <= 400; ++call) Call(call, kPark);
  ASSERT_TRUE(handler_->AwaitParked(400));
  client_->Close();
  EXPECT_TRUE(handler_->AwaitParked(0));
}

// It had sent something before the first look, and nothing since.
TEST_F(FramedRpcServerTest, AClientThatIsSilentWhileACallIsOverdueIsDisconnected) {
  handler_->checks_calls = true;
  Call(1, kPark);
  EXPECT_FALSE(client_->Next().has_value());
  EXPECT_TRUE(handler_->AwaitParked(0));
}

// Some of the looks find no call.
TEST_F(FramedRpcServerTest, AnOverdueCallIsFoundAfterALookThatFoundNone) {
  handler_->checks_calls = true;
  handler_->calls_are_overdue = false;
  for (uint32_t call = 1; call <= 1000; ++call) {
    Call(call, kPark);
    ASSERT_TRUE(handler_->AwaitParked(1));
    handler_->AnswerParked(absl::OkStatus());
    ASSERT_TRUE(client_->Next().has_value());
  }
  handler_->calls_are_overdue = true;
  Call(1001, kPark);
  EXPECT_FALSE(client_->Next().has_value());
  EXPECT_TRUE(handler_->AwaitParked(0));
}

TEST_F(FramedRpcServerTest, ParkedCallsAreAnsweredInOneBatch) {
  for (uint32_t call = 1; call <= 50; ++call) Call(call, kPark);
  ASSERT_TRUE(handler_->AwaitParked(50));
  handler_->AnswerParked(absl::NotFoundError("gone"));
  for (uint32_t call = 1; call <= 50; ++call) {
    const auto reply = client_->Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->header.call, call);
    EXPECT_EQ(reply->text(), "gone");
  }
}

// Unread answers wait at the server up to a bound; then the server reads no more requests.
TEST_F(FramedRpcServerTest, AClientThatDoesNotReadIsNotReadFrom) {
  CallWithoutReading();
  // The bound has room for 41 answers of 200 KiB, and sockets for a few more.
  EXPECT_LT(handler_->started, 200);
  EXPECT_GT(handler_->unread, 4 << 20);
  EXPECT_LT(handler_->unread, 16 << 20);
  // Others are served meanwhile.
  const std::unique_ptr<TestClient> other = Connect();
  other->Send(other->Frame(Kind::kCall, 1, kEcho, ""));
  EXPECT_EQ(other->Next()->code(), absl::StatusCode::kOk);
  client_->Close();
  EXPECT_TRUE(AwaitUnread(0));
}

// They came together with those before them.
TEST_F(FramedRpcServerTest, RequestsBehindUnreadAnswersAreServedLater) {
  constexpr uint32_t kCalls = 100;
  handler_->answer_bytes = 200 << 10;
  std::string calls;
  for (uint32_t call = 1; call <= kCalls; ++call) {
    calls += client_->Frame(Kind::kCall, call, kEcho, "");
  }
  client_->Send(calls);
  const Instant end = Clock::Steady().Now() + absl::Seconds(20);
  while (handler_->unread < (8 << 20) && Clock::Steady().Now() < end) std::this_thread::yield();
  EXPECT_LT(handler_->started, kCalls);
  for (uint32_t call = 1; call <= kCalls; ++call) {
    const auto reply = client_->Next();
    ASSERT_TRUE(reply.has_value()) << call;
    EXPECT_EQ(reply->header.call, call);
  }
}

TEST_F(FramedRpcServerTest, AChargeThatFailsEndsTheConnection) {
  handler_->max_unread = 2 << 20;
  const std::string call = client_->Frame(Kind::kCall, 1, kEcho, std::string(200 << 10, 'x'));
  for (int i = 0; i < 1024 && client_->TrySend(call); ++i) continue;
  int answers = 0;
  while (client_->Next().has_value()) ++answers;
  EXPECT_LT(answers, 200) << "the connection was not closed";
  EXPECT_TRUE(AwaitUnread(0));
}

TEST_F(FramedRpcServerTest, StopCancelsCallsAndEndsConnections) {
  Call(1, kPark);
  ASSERT_TRUE(handler_->AwaitParked(1));
  server_->Stop(absl::Seconds(10));
  EXPECT_TRUE(handler_->AwaitParked(0));
  EXPECT_FALSE(client_->Next().has_value());
}

TEST_F(FramedRpcServerTest, StopSendsTheRepliesThatWait) {
  constexpr uint32_t kCalls = 20;
  const std::string message(200 << 10, 'x');
  for (uint32_t call = 1; call <= kCalls; ++call) Call(call, kEcho, message);
  const Instant end = Clock::Steady().Now() + absl::Seconds(20);
  while (handler_->started < kCalls && Clock::Steady().Now() < end) std::this_thread::yield();
  ASSERT_EQ(handler_->started, kCalls);
  std::thread stop([this] { server_->Stop(absl::Seconds(20)); });
  for (uint32_t call = 1; call <= kCalls; ++call) {
    const auto reply = client_->Next();
    EXPECT_TRUE(reply.has_value() && reply->body == message) << call;
  }
  EXPECT_FALSE(client_->Next().has_value());
  stop.join();
}

// The parked call keeps its connection and the handler.
TEST_F(FramedRpcServerTest, ACallMayEndAfterItsServer) {
  Call(1, kPark);
  ASSERT_TRUE(handler_->AwaitParked(1));
  std::thread answer([this] { handler_->AnswerParked(absl::OkStatus()); });
  server_.reset();
  answer.join();
  EXPECT_TRUE(handler_->AwaitParked(0));
}

}  // namespace
}  // namespace cohort::framed_rpc
