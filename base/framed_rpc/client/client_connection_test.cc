// A connection against a scripted server, frame by frame. All tests share that server, so one file
// has them.
#include "base/framed_rpc/client/client_connection.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/framed_rpc/client/testing/fake_framed_rpc_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr size_t kMaxBytes = 1 << 20;

class Answer final : public ClientConnection::Waiter {
 public:
  void OnReply(const grpc::Status& status, absl::string_view body) override {
    status_ = status;
    body_ = std::string(body);
    here_.Notify();
  }
  // Waits.
  const grpc::Status& status() {
    EXPECT_TRUE(here_.WaitForNotificationWithTimeout(kLong));
    return status_;
  }
  const std::string& body() {
    EXPECT_TRUE(status().ok()) << status().error_message();
    return body_;
  }
  bool answered() const { return here_.HasBeenNotified(); }

 private:
  absl::Notification here_;
  grpc::Status status_;
  std::string body_;
};

// Waits until the thread, whose id is 0 at first, sleeps in the kernel.
void AwaitSleep(const std::atomic<pid_t>& id) {
  std::string state;
  while (state != "S") {
    std::ifstream file(absl::StrCat("/proc/self/task/", id.load(), "/stat"));
    std::string number, name;
    if (!(file >> number >> name >> state)) std::this_thread::yield();
  }
}

std::string Frame16(const std::string& body) { return std::string(kHeaderBytes, '\0') + body; }

class ClientConnectionTest : public testing::Test {
 protected:
  ~ClientConnectionTest() override {
    if (connection_ != nullptr) {
      connection_->Close();
      End();
    }
  }

  std::shared_ptr<ClientConnection> Connect(std::vector<SocketAddress> addresses = {},
                                            absl::Duration timeout = kLong) {
    if (addresses.empty()) addresses = {host_.address()};
    ChannelOptions options;
    options.max_message_bytes = kMaxBytes;
    options.connect_timeout = timeout;
    connection_ = ClientConnection::Connect(
        std::move(addresses), options, [this] { ready_.Notify(); },
        [this](ClientConnection::End end, const std::string&) {
          end_ = end;
          ended_.Notify();
        });
    return connection_;
  }
  std::unique_ptr<FakeServerConnection> Accept() { return host_.Accept(); }
  std::unique_ptr<FakeServerConnection> Ready() {
    Connect();
    auto peer = Accept();
    peer->Greet();
    EXPECT_TRUE(ready_.WaitForNotificationWithTimeout(kLong));
    return peer;
  }
  ClientConnection::End End() {
    EXPECT_TRUE(ended_.WaitForNotificationWithTimeout(kLong));
    return end_;
  }
  // Makes the call on a thread of its own.
  std::thread CallAside(Answer& answer, const std::string& body, absl::Duration timeout = kLong) {
    return std::thread([this, &answer, body, timeout] {
      EXPECT_TRUE(connection_->Call(0, Frame16(body), timeout, answer));
    });
  }

  FakeServer host_;
  std::shared_ptr<ClientConnection> connection_;
  absl::Notification ready_;
  absl::Notification ended_;
  ClientConnection::End end_ = ClientConnection::End::kBroken;
};

TEST_F(ClientConnectionTest, KnowsTheServersMethods) {
  const auto peer = Ready();
  EXPECT_EQ(connection_->Number("a/One"), 0);
  EXPECT_EQ(connection_->Number("a/Two"), 1);
  EXPECT_EQ(connection_->Number("a/Three"), -1);
}

TEST_F(ClientConnectionTest, ReadsAGreetingInPieces) {
  Connect();
  const auto peer = Accept();
  std::string bytes(kPreface);
  Header header;
  header.kind = Kind::kHello;
  header.body_bytes = 6;
  AppendHeader(header, &bytes);
  bytes += "a/One\n";
  for (const char byte : bytes) peer->Send(std::string(1, byte));
  ASSERT_TRUE(ready_.WaitForNotificationWithTimeout(kLong));
  EXPECT_EQ(connection_->Number("a/One"), 0);
}

TEST_F(ClientConnectionTest, BlockingCallsReadForEachOther) {
  const auto peer = Ready();
  constexpr int kCallers = 8;
  std::vector<Answer> answers(kCallers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i) threads.push_back(CallAside(answers[i], absl::StrCat(i)));
  std::vector<std::pair<uint32_t, std::string>> calls;
  for (int i = 0; i < kCallers; ++i) {
    std::string body;
    const auto header = peer->Next(&body);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->kind, Kind::kCall);
    calls.emplace_back(header->call, body);
  }
  // The caller that reads gets its own answer somewhere in the middle, and another reads on.
  for (int i = kCallers - 1; i >= 0; --i) peer->Reply(calls[i].first, calls[i].second + "!");
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kCallers; ++i) EXPECT_EQ(answers[i].body(), absl::StrCat(i, "!"));
}

// Answers come one by one: the caller that reads leaves with its own, and the next reads on.
TEST_F(ClientConnectionTest, BlockingCallersPassTheReadingOn) {
  const auto peer = Ready();
  constexpr int kCallers = 4;
  std::vector<Answer> answers(kCallers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i) threads.push_back(CallAside(answers[i], absl::StrCat(i)));
  std::vector<std::pair<uint32_t, size_t>> calls;
  for (int i = 0; i < kCallers; ++i) {
    std::string body;
    const auto header = peer->Next(&body);
    ASSERT_TRUE(header.has_value());
    calls.emplace_back(header->call, std::stoul(body));
  }
  for (const auto& [call, caller] : calls) {
    peer->Reply(call, "!");
    EXPECT_EQ(answers[caller].body(), "!") << caller;
    threads[caller].join();
  }
}

// The one that reads meets its deadline, and the server has not answered the other one yet.
TEST_F(ClientConnectionTest, ABlockingCallerThatIsLatePassesTheReadingOn) {
  const auto peer = Ready();
  for (const bool other_blocks : {true, false}) {
    Answer late;
    std::atomic<pid_t> reads = 0, waits = 0;
    std::thread caller([&] {
      reads = gettid();
      EXPECT_TRUE(connection_->Call(0, Frame16("late"), absl::Milliseconds(200), late));
    });
    ASSERT_TRUE(peer->Next().has_value());
    AwaitSleep(reads);
    const auto other = std::make_shared<Answer>();
    std::thread blocked;
    uint32_t id = 0;
    if (other_blocks) {
      blocked = std::thread([&] {
        waits = gettid();
        EXPECT_TRUE(connection_->Call(0, Frame16("other"), kLong, *other));
      });
      id = peer->Next()->call;
      AwaitSleep(waits);
    } else {
      ASSERT_TRUE(connection_->Start(0, Frame16("other"), kLong, other, &id));
      EXPECT_EQ(peer->Next()->call, id);
    }
    caller.join();
    EXPECT_EQ(late.status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(peer->Next()->kind, Kind::kCancel);
    peer->Reply(id, "in time");
    EXPECT_EQ(other->body(), "in time");
    if (other_blocks) blocked.join();
  }
}

TEST_F(ClientConnectionTest, CallsThatBlockAndCallsThatDoNot) {
  const auto peer = Ready();
  auto first = std::make_shared<Answer>();
  auto second = std::make_shared<Answer>();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->Start(1, Frame16("x"), kLong, first, &id));
  ASSERT_TRUE(connection_->Start(1, Frame16("y"), kLong, second, &id));
  const auto one = peer->Next();
  const auto two = peer->Next();
  EXPECT_EQ(one->method, 1);
  EXPECT_GT(one->extra, 20000);
  peer->Reply(one->call, "1");
  EXPECT_EQ(first->body(), "1");
  // Meanwhile another caller blocks and reads.
  Answer blocking;
  std::thread caller = CallAside(blocking, "z");
  const auto three = peer->Next();
  peer->Reply(two->call, "2");
  EXPECT_EQ(second->body(), "2");
  peer->Reply(three->call, "3");
  caller.join();
  EXPECT_EQ(blocking.body(), "3");
  // The loop reads again afterwards.
  auto last = std::make_shared<Answer>();
  ASSERT_TRUE(connection_->Start(1, Frame16("x"), kLong, last, &id));
  peer->Reply(peer->Next()->call, "4");
  EXPECT_EQ(last->body(), "4");
}

TEST_F(ClientConnectionTest, TheLoopReadsOnWhenABlockingCallerLeaves) {
  const auto peer = Ready();
  auto answer = std::make_shared<Answer>();
  Answer blocking;
  std::thread caller = CallAside(blocking, "z");
  const auto one = peer->Next();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->Start(1, Frame16("x"), kLong, answer, &id));
  const auto two = peer->Next();
  peer->Reply(one->call, "");
  caller.join();
  peer->Reply(two->call, "late");
  EXPECT_EQ(answer->body(), "late");
}

TEST_F(ClientConnectionTest, FailuresHaveTextAndDetails) {
  const auto peer = Ready();
  Answer answer;
  std::thread caller = CallAside(answer, "z");
  Header header;
  header.call = peer->Next()->call;
  header.kind = Kind::kReply;
  header.code = static_cast<uint8_t>(grpc::StatusCode::ABORTED);
  header.extra = 4;
  peer->SendFrame(header, "textdetails");
  caller.join();
  EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(answer.status().error_message(), "text");
  EXPECT_EQ(answer.status().error_details(), "details");
}

TEST_F(ClientConnectionTest, LateCallsAreCancelled) {
  const auto peer = Ready();
  Answer answer;
  ASSERT_TRUE(connection_->Call(0, Frame16("z"), absl::Milliseconds(20), answer));
  EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  auto started = std::make_shared<Answer>();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->Start(0, Frame16("y"), absl::Milliseconds(20), started, &id));
  EXPECT_EQ(started->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The loop looks at the clock again as long as a call waits.
  auto later = std::make_shared<Answer>();
  ASSERT_TRUE(connection_->Start(0, Frame16("w"), absl::Milliseconds(700), later, &id));
  EXPECT_EQ(later->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  for (int i = 0; i < 3; ++i) {
    const auto call = peer->Next();
    const auto cancel = peer->Next();
    EXPECT_EQ(cancel->kind, Kind::kCancel);
    EXPECT_EQ(cancel->call, call->call);
    peer->Reply(call->call, "too late");  // and read by no caller
  }
  Answer next;
  std::thread caller = CallAside(next, "x");
  peer->Reply(peer->Next()->call, "in time");
  caller.join();
  EXPECT_EQ(next.body(), "in time");
}

TEST_F(ClientConnectionTest, CancelEndsACall) {
  const auto peer = Ready();
  auto answer = std::make_shared<Answer>();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->Start(0, Frame16("y"), kLong, answer, &id));
  connection_->Cancel(id);
  EXPECT_EQ(answer->status().error_code(), grpc::StatusCode::CANCELLED);
  connection_->Cancel(id);  // nothing is there any more
  EXPECT_EQ(peer->Next()->kind, Kind::kCall);
  EXPECT_EQ(peer->Next()->kind, Kind::kCancel);
}

TEST_F(ClientConnectionTest, ACallThatIsAskedToCancelEndsWithTheReplyOfTheServer) {
  const auto peer = Ready();
  uint32_t id = 0;
  auto crossed = std::make_shared<Answer>();
  ASSERT_TRUE(connection_->Start(0, Frame16("y"), kLong, crossed, &id));
  connection_->AskToCancel(id, kLong);
  const auto call = peer->Next();
  EXPECT_EQ(peer->Next()->kind, Kind::kCancel);
  peer->Reply(call->call, "was on its way");
  EXPECT_EQ(crossed->body(), "was on its way");
  connection_->AskToCancel(id, kLong);  // nothing is there any more
  // A server that does not reply is given up.
  auto silent = std::make_shared<Answer>();
  ASSERT_TRUE(connection_->Start(0, Frame16("y"), kLong, silent, &id));
  connection_->AskToCancel(id, absl::ZeroDuration());
  EXPECT_EQ(silent->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(ClientConnectionTest, PatienceWithACancelledCallEndsAtItsTimeout) {
  const auto peer = Ready();
  auto answer = std::make_shared<Answer>();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->Start(0, Frame16("y"), absl::Milliseconds(20), answer, &id));
  connection_->AskToCancel(id, absl::Hours(1));
  EXPECT_EQ(answer->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(ClientConnectionTest, CancelEndsCallsThatBlock) {
  const auto peer = Ready();
  // One reads for both, and the server answers neither.
  for (int i = 0; i < 20; ++i) {
    Answer answers[2];
    ClientConnection::BlockingCall first(answers[0]);
    ClientConnection::BlockingCall second(answers[1]);
    ASSERT_TRUE(connection_->Begin(0, Frame16("a"), kLong, first));
    ASSERT_TRUE(connection_->Begin(0, Frame16("b"), kLong, second));
    std::atomic<pid_t> ids[2] = {0, 0};
    const auto await = [&](ClientConnection::BlockingCall& call, std::atomic<pid_t>& id) {
      id = gettid();
      connection_->Await(call);
    };
    std::thread one([&] { await(first, ids[0]); });
    std::thread two([&] { await(second, ids[1]); });
    for (const std::atomic<pid_t>& id : ids) AwaitSleep(id);
    for (int frame = 0; frame < 2; ++frame) EXPECT_EQ(peer->Next()->kind, Kind::kCall);
    connection_->Cancel(i % 2 == 0 ? first.id() : second.id());
    connection_->Cancel(i % 2 == 0 ? second.id() : first.id());
    one.join();
    two.join();
    for (Answer& answer : answers) {
      EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::CANCELLED);
    }
    for (int frame = 0; frame < 2; ++frame) EXPECT_EQ(peer->Next()->kind, Kind::kCancel);
  }
  // The wakes that were left over end no later call.
  Answer next;
  std::thread caller = CallAside(next, "x");
  peer->Reply(peer->Next()->call, "in time");
  caller.join();
  EXPECT_EQ(next.body(), "in time");
}

TEST_F(ClientConnectionTest, ABrokenConnectionEndsAllCalls) {
  auto peer = Ready();
  constexpr int kCallers = 4;
  std::vector<Answer> answers(kCallers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i) threads.push_back(CallAside(answers[i], absl::StrCat(i)));
  auto started = std::make_shared<Answer>();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->Start(0, Frame16("y"), kLong, started, &id));
  for (int i = 0; i < kCallers + 1; ++i) ASSERT_TRUE(peer->Next().has_value());
  peer->Close();
  for (std::thread& thread : threads) thread.join();
  for (Answer& answer : answers) {
    EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(started->status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(End(), ClientConnection::End::kBroken);
  Answer none;
  EXPECT_FALSE(connection_->Call(0, Frame16(""), kLong, none));
}

TEST_F(ClientConnectionTest, NoticesTheEndOfAnIdleConnection) {
  Ready()->Close();
  EXPECT_EQ(End(), ClientConnection::End::kBroken);
}

TEST_F(ClientConnectionTest, AnswersThatAreTooLargeAreSkipped) {
  const auto peer = Ready();
  Answer answer;
  std::thread caller = CallAside(answer, "z");
  const uint32_t call = peer->Next()->call;
  peer->Reply(call, std::string(kMaxBytes + 1, 'x'));
  caller.join();
  EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.status().error_message(), HasSubstr("max_message_bytes"));
  Answer next;
  std::thread again = CallAside(next, "z");
  peer->Reply(peer->Next()->call, std::string(kMaxBytes, 'y'));
  again.join();
  EXPECT_EQ(next.body(), std::string(kMaxBytes, 'y'));
}

TEST_F(ClientConnectionTest, AStreamWhosePartIsTooLargeEndsAtTheServerToo) {
  const auto peer = Ready();
  auto answer = std::make_shared<Answer>();
  uint32_t id = 0;
  ASSERT_TRUE(connection_->StartStream(0, Frame16("y"), answer, &id));
  Header part;
  part.call = peer->Next()->call;
  part.kind = Kind::kPart;
  peer->SendFrame(part, std::string(kMaxBytes + 1, 'x'));
  EXPECT_EQ(answer->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  connection_->Close();  // no frame follows
  const std::optional<Header> cancel = peer->Next();
  ASSERT_TRUE(cancel.has_value()) << "the server was not told";
  EXPECT_EQ(cancel->kind, Kind::kCancel);
  EXPECT_EQ(cancel->call, part.call);
}

TEST_F(ClientConnectionTest, LargeRequestsWaitForTheSocket) {
  const auto peer = Ready();
  const std::string large(kMaxBytes, 'r');
  auto answer = std::make_shared<Answer>();
  uint32_t id = 0;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(connection_->Start(0, Frame16(large), kLong, std::make_shared<Answer>(), &id));
  }
  ASSERT_TRUE(connection_->Start(0, Frame16("end"), kLong, answer, &id));
  std::string body;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(peer->Next(&body).has_value());
    EXPECT_TRUE(body == large);
  }
  peer->Reply(peer->Next(&body)->call, "done");
  EXPECT_EQ(body, "end");
  EXPECT_EQ(answer->body(), "done");
}

TEST_F(ClientConnectionTest, AServerOfAnotherKindIsNotOurs) {
  Connect();
  const auto peer = Accept();
  peer->Send(std::string("\0\0\x12\4\0\0\0\0\0\0\3", 11));  // HTTP/2 begins so
  EXPECT_EQ(End(), ClientConnection::End::kNotOurs);
}

TEST_F(ClientConnectionTest, SilenceIsNoGreeting) {
  Connect({}, absl::Milliseconds(50));
  const auto peer = Accept();
  EXPECT_EQ(End(), ClientConnection::End::kBroken);
}

TEST_F(ClientConnectionTest, TriesTheAddressesInOrder) {
  // A port that was free a moment ago.
  SocketAddress closed_port = host_.address();
  const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  reinterpret_cast<sockaddr_in*>(&closed_port.storage)->sin_port = 0;
  ASSERT_EQ(bind(other, reinterpret_cast<sockaddr*>(&closed_port.storage), closed_port.size), 0);
  socklen_t size = sizeof(sockaddr_storage);
  ASSERT_EQ(getsockname(other, reinterpret_cast<sockaddr*>(&closed_port.storage), &size), 0);
  Connect({closed_port, host_.address()});  // bound, but not listening
  Accept()->Greet();
  EXPECT_TRUE(ready_.WaitForNotificationWithTimeout(kLong));
  close(other);
}

}  // namespace
}  // namespace cohort::framed_rpc
