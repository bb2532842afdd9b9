// One file, though long: all tests write frames to a server with one handler, and read its answers.
#include "base/framed_rpc/server/blocking_server.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/access/token_hash.h"
#include "base/clock.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/peer/listener_peer.h"
#include "base/testing/no_new_threads.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxMessageBytes = 4096;
constexpr char kMethod[] = "test.Service/Echo";
constexpr absl::Duration kSoon = absl::Seconds(20);

// Answers with the request, unless it begins with "refuse". A request that begins with "wait" runs
// until the test calls Release. The answer to "who" is the identity of the client, that to "much"
// is large, and "deny" is refused for want of rights.
class EchoHandler final : public BlockingHandler {
 public:
  // More than the buffers of a socket take.
  static constexpr size_t kMuch = size_t{8} << 20;

  absl::Status Run(uint16_t /*method*/, absl::string_view request, PeerAccess* access,
                   std::string* answer, std::shared_ptr<const void>* kept) override {
    if (request == "who") {
      answer->append(*access->Current(Clock::Steady().Now())->identity);
      return absl::OkStatus();
    }
    if (request == "much") {
      answer->append(kMuch, 'x');
      const auto object = std::make_shared<int>(0);
      kept_ = object;
      *kept = object;
      return absl::OkStatus();
    }
    if (absl::StartsWith(request, "no memory")) throw std::bad_alloc();
    if (absl::StartsWith(request, "wait")) {
      waits_.Notify();
      EXPECT_TRUE(released_.WaitForNotificationWithTimeout(kSoon));
    }
    if (request == "deny") return absl::PermissionDeniedError("denied");
    answer->append(request.data(), request.size());
    if (absl::StartsWith(request, "refuse")) return absl::InvalidArgumentError("refused");
    return absl::OkStatus();
  }
  const std::weak_ptr<const void>& kept() const { return kept_; }
  bool AwaitWaiting() { return waits_.WaitForNotificationWithTimeout(kSoon); }
  void Release() { released_.Notify(); }

 private:
  std::weak_ptr<const void> kept_;
  absl::Notification waits_;
  absl::Notification released_;
};

class BlockingServerTest : public ::testing::Test {
 protected:
  // Returns the client's end of a connection.
  UniqueFd Connect(std::shared_ptr<IncompleteRequestBytes> incoming = nullptr,
                   std::shared_ptr<PeerAccess> access = nullptr) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    ListenerPeer peer;
    peer.incoming = std::move(incoming);
    peer.access = std::move(access);
    server_.Adopt(ends[0], std::move(peer));
    fcntl(ends[1], F_SETFL, 0);
    return UniqueFd(ends[1]);
  }
  UniqueFd ConnectAndGreet(std::shared_ptr<IncompleteRequestBytes> incoming = nullptr) {
    UniqueFd fd = Connect(std::move(incoming));
    Send(fd, std::string(kPreface));
    EXPECT_EQ(Read(fd, kPreface.size()), kPreface);
    const Header hello = ReadHeader(fd);
    EXPECT_EQ(hello.kind, Kind::kHello);
    EXPECT_EQ(Read(fd, hello.body_bytes), "test.Service/Echo\n");
    return fd;
  }
  UniqueFd ConnectAndCall() {
    UniqueFd fd = ConnectAndGreet();
    Send(fd, Call(1, 0, "x"));
    EXPECT_EQ(Read(fd, ReadHeader(fd).body_bytes), "x");
    return fd;
  }

  static void Send(const UniqueFd& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static std::string Call(uint32_t id, uint16_t method, const std::string& body) {
    Header header;
    header.kind = Kind::kCall;
    header.call = id;
    header.method = method;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.extra = kNoTimeout;
    std::string frame;
    AppendHeader(header, &frame);
    return frame + body;
  }
  // Returns fewer bytes if the connection is closed.
  static std::string Read(const UniqueFd& fd, size_t bytes) {
    std::string read;
    while (read.size() < bytes) {
      pollfd ready = {fd.get(), POLLIN, 0};
      if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(kSoon))) != 1) {
        ADD_FAILURE() << "nothing came in time";
        break;
      }
      char part[4096];
      const ssize_t count = recv(fd.get(), part, std::min(sizeof(part), bytes - read.size()), 0);
      if (count <= 0) break;
      read.append(part, static_cast<size_t>(count));
    }
    return read;
  }
  static Header ReadHeader(const UniqueFd& fd) {
    const std::string bytes = Read(fd, kHeaderBytes);
    FrameReader reader(kMaxMessageBytes * 2);
    bytes.copy(reader.Room(bytes.size()), bytes.size());
    reader.Filled(bytes.size());
    const size_t wanted = reader.wanted();
    if (wanted > 0) {
      reader.Room(wanted);
      reader.Filled(wanted);
    }
    Frame frame;
    EXPECT_EQ(reader.Read(&frame), FrameReader::Next::kFrame);
    return frame.header;
  }
  static std::string ReadError(const UniqueFd& fd, uint32_t id, absl::StatusCode code) {
    const Header header = ReadHeader(fd);
    EXPECT_EQ(header.kind, Kind::kReply);
    EXPECT_EQ(header.call, id);
    EXPECT_EQ(header.code, static_cast<int>(code));
    return Read(fd, header.body_bytes).substr(0, header.extra);
  }
  static bool Closed(const UniqueFd& fd) { return Read(fd, 1).empty(); }

  EchoHandler handler_;
  BlockingServer server_{{kMaxMessageBytes, 3}, {kMethod}, handler_};
};

TEST_F(BlockingServerTest, CallsAreAnsweredInOrder) {
  const UniqueFd fd = ConnectAndGreet();
  // Two calls, sent in two pieces.
  const std::string both = Call(8, 0, "first") + Call(9, 0, "refuse");
  Send(fd, both.substr(0, 5));
  Send(fd, both.substr(5));
  const Header reply = ReadHeader(fd);
  EXPECT_EQ(reply.call, 8);
  EXPECT_EQ(reply.code, 0);
  EXPECT_EQ(Read(fd, reply.body_bytes), "first");
  EXPECT_EQ(ReadError(fd, 9, absl::StatusCode::kInvalidArgument), "refused");
}

TEST_F(BlockingServerTest, ATokenCountsForTheConnection) {
  const std::string path = ::testing::TempDir() + "/policy.json";
  std::ofstream(path) << R"({"rules": [], "tokens": [{"name": "ci", "sha256": ")"
                      << absl::BytesToHexString(HashToken("of ci")) << R"("}]})";
  const std::shared_ptr<AccessPolicy> policy = AccessPolicy::Load(path).value();
  const auto access =
      std::make_shared<PeerAccess>(policy, std::vector<std::string>{"anonymous-tls"});
  const auto token_frame = [](const std::string& token) {
    Header header;
    header.kind = Kind::kToken;
    header.body_bytes = static_cast<uint32_t>(token.size());
    std::string frame;
    AppendHeader(header, &frame);
    return frame + token;
  };
  for (const auto& [sent, identity] :
       std::vector<std::pair<std::string, std::string>>{{"", "anonymous-tls"},
                                                        {token_frame("of ci"), "token:ci"},
                                                        {token_frame("x"),
                                                         "a client with an "
                                                         "unknown token"}}) {
    const UniqueFd fd = Connect(nullptr, access);
    Send(fd, std::string(kPreface) + sent + Call(1, 0, "who"));
    Read(fd, kPreface.size());
    Read(fd, ReadHeader(fd).body_bytes);
    EXPECT_EQ(Read(fd, ReadHeader(fd).body_bytes), identity);
    // The last token counts.
    Send(fd, token_frame("x") + token_frame("of ci") + Call(2, 0, "who"));
    EXPECT_EQ(Read(fd, ReadHeader(fd).body_bytes), "token:ci");
    Send(fd, token_frame(std::string(4097, 'x')));
    EXPECT_TRUE(Closed(fd));
  }
}

TEST_F(BlockingServerTest, AClientWithoutARoleIsDisconnectedWithItsFirstDeniedCall) {
  const std::string path = ::testing::TempDir() + "/policy.json";
  std::ofstream(path)
      << R"({"rules": [{"identity": "friend", "tenant": "a", "role": "observer"}]})";
  const std::shared_ptr<AccessPolicy> policy = AccessPolicy::Load(path).value();
  const auto deny = [](const UniqueFd& fd) {
    Send(fd, Call(1, 0, "deny"));
    EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kPermissionDenied), "denied");
  };
  const auto connect = [&](const std::string& identity) {
    UniqueFd fd =
        Connect(nullptr, std::make_shared<PeerAccess>(policy, std::vector<std::string>{identity}));
    Send(fd, std::string(kPreface));
    Read(fd, kPreface.size());
    Read(fd, ReadHeader(fd).body_bytes);
    return fd;
  };
  const UniqueFd stranger = connect("stranger");
  deny(stranger);
  EXPECT_TRUE(Closed(stranger));
  const UniqueFd other = connect("friend");
  deny(other);
  deny(other);
}

// Each connection has a thread.
TEST_F(BlockingServerTest, ClientsWithoutARoleHaveFewConnectionsForEachAddress) {
  const std::string path = ::testing::TempDir() + "/policy.json";
  std::ofstream(path)
      << R"({"rules": [{"identity": "friend", "tenant": "a", "role": "observer"}]})";
  const std::shared_ptr<AccessPolicy> policy = AccessPolicy::Load(path).value();
  constexpr int kMost = BlockingServer::kMaxWithoutRole;
  BlockingServer server{{kMaxMessageBytes, 4 * kMost}, {kMethod}, handler_};
  const auto connect = [&](const std::string& identity, const std::string& address) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ListenerPeer peer;
    peer.access = std::make_shared<PeerAccess>(policy, std::vector<std::string>{identity});
    peer.counted_address = address;
    server.Adopt(ends[0], std::move(peer));
    return UniqueFd(ends[1]);
  };
  const auto greeted = [](const UniqueFd& fd) {
    Send(fd, std::string(kPreface));
    return Read(fd, kPreface.size()) == kPreface;
  };
  std::vector<UniqueFd> friends;
  for (int i = 0; i <= kMost; ++i) friends.push_back(connect("friend", "10.0.0.1"));
  const UniqueFd elsewhere = connect("stranger", "10.0.0.2");
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < kMost; ++i) strangers.push_back(connect("stranger", "10.0.0.1"));
  EXPECT_TRUE(greeted(strangers[0]));
  strangers.push_back(connect("stranger", "10.0.0.1"));
  Read(strangers[0], ReadHeader(strangers[0]).body_bytes);
  EXPECT_TRUE(Closed(strangers[0]));
  EXPECT_TRUE(greeted(strangers[1]));
  EXPECT_TRUE(greeted(strangers[kMost]));
  EXPECT_TRUE(greeted(elsewhere));
  for (const UniqueFd& fd : friends) EXPECT_TRUE(greeted(fd));
}

TEST_F(BlockingServerTest, TheServerKeepsAnObjectOfTheCallUntilTheAnswerIsSent) {
  const UniqueFd fd = ConnectAndGreet();
  Send(fd, Call(1, 0, "much"));
  EXPECT_EQ(Read(fd, kHeaderBytes).size(), kHeaderBytes);
  EXPECT_FALSE(handler_.kept().expired()) << "before the client has taken the answer";
  EXPECT_EQ(Read(fd, EchoHandler::kMuch).size(), EchoHandler::kMuch);
  Send(fd, Call(2, 0, "x"));
  EXPECT_EQ(Read(fd, ReadHeader(fd).body_bytes), "x");
  EXPECT_TRUE(handler_.kept().expired());
}

TEST_F(BlockingServerTest, ACallWithoutMemoryIsRefused) {
  const UniqueFd fd = ConnectAndGreet();
  Send(fd, Call(1, 0, "no memory"));
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kResourceExhausted),
            "test.Service/Echo: the process has no memory left for a request of 9 bytes");
}

// Each connection keeps a buffer for its incomplete request.
TEST_F(BlockingServerTest, IncompleteRequestsHaveALimitOverAllConnections) {
  constexpr int64_t kLimit = 100000;
  const auto incoming = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", kLimit);
  const auto await_held = [&](const std::function<bool(int64_t)>& enough) {
    const Instant deadline = Clock::Steady().Now() + kSoon;
    while (!enough(incoming->held()) && Clock::Steady().Now() < deadline) std::this_thread::yield();
    return enough(incoming->held());
  };
  const std::string request = Call(1, 0, std::string(4000, 'x'));
  UniqueFd first = ConnectAndGreet(incoming);
  Send(first, request.substr(0, 2000));
  ASSERT_TRUE(await_held([](int64_t held) { return held > kLimit / 2; }));
  const int64_t of_first = incoming->held();
  const UniqueFd second = ConnectAndGreet(incoming);
  Send(second, request.substr(0, 2000));
  const std::string error = ReadError(second, 1, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error, HasSubstr("no room for a request of 4000 bytes"));
  EXPECT_THAT(error, HasSubstr("max_incoming_bytes (100000)"));
  EXPECT_TRUE(await_held([&](int64_t held) { return held == of_first; })) << incoming->held();
  // The rest of the refused request is skipped.
  Send(second, request.substr(2000) + Call(2, 5, ""));
  EXPECT_EQ(ReadError(second, 2, absl::StatusCode::kUnimplemented), "no method 5");
  first = UniqueFd();
  EXPECT_TRUE(await_held([](int64_t held) { return held == 0; })) << incoming->held();
}

// Tests with requests that are large compared with the process's memory limit.
class NoMemoryTest : public BlockingServerTest {
 protected:
  static constexpr int64_t kLarge = 24 << 20;

  ~NoMemoryTest() override { LimitData(-1); }
  // Limits data to `room` bytes more than the process has now; a negative `room` removes the limit.
  static void LimitData(int64_t room) {
    rlimit limit;
    ASSERT_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
    int64_t pages[6] = {};
    std::ifstream file("/proc/self/statm");
    for (int64_t& count : pages) file >> count;
    limit.rlim_cur =
        room < 0 ? limit.rlim_max : static_cast<rlim_t>(pages[5] * sysconf(_SC_PAGESIZE) + room);
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  }

  BlockingServer server_for_large_{{64 << 20, 3}, {kMethod}, handler_};
};

TEST_F(NoMemoryTest, ARequestWithoutMemoryIsRefusedAndTheNextIsServed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator ends the process where an allocation fails";
#endif
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  server_for_large_.Adopt(ends[0]);
  const UniqueFd fd(ends[1]);
  Send(fd, std::string(kPreface));
  Read(fd, kPreface.size());
  Read(fd, ReadHeader(fd).body_bytes);
  const std::string large = Call(1, 0, "refuse" + std::string(kLarge - 6, 'x'));
  ASSERT_NO_FATAL_FAILURE(LimitData(kLarge * 2 / 3));
  Send(fd, large);
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kResourceExhausted),
            "test.Service/Echo: the process has no memory left for a request "
            "of 25165824 bytes");
  Send(fd, Call(2, 9, ""));
  EXPECT_EQ(ReadError(fd, 2, absl::StatusCode::kUnimplemented), "no method 9");
  ASSERT_NO_FATAL_FAILURE(LimitData(-1));
  Send(fd, large);
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kInvalidArgument), "refused");
}

TEST_F(NoMemoryTest, AnIdleConnectionKeepsNoMemoryOfItsLastCall) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator has no statistics";
#endif
  constexpr size_t kMostKept = size_t{1} << 20;
  const auto allocated = [] {
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  server_for_large_.Adopt(ends[0]);
  const UniqueFd fd(ends[1]);
  Send(fd, std::string(kPreface));
  Read(fd, kPreface.size());
  Read(fd, ReadHeader(fd).body_bytes);
  const size_t before = allocated();
  Send(fd, Call(1, 0, "refuse" + std::string(kLarge - 6, 'x')));
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kInvalidArgument), "refused");
  // The server has answered it when it waits for the next one.
  Send(fd, Call(2, 9, ""));
  EXPECT_EQ(ReadError(fd, 2, absl::StatusCode::kUnimplemented), "no method 9");
  EXPECT_LT(allocated(), before + kMostKept);
}

TEST_F(BlockingServerTest, AnInvalidCallIsRejectedAndTheNextIsServed) {
  const UniqueFd fd = ConnectAndGreet();
  Send(fd, Call(1, 3, ""));
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kUnimplemented), "no method 3");
  Send(fd, Call(2, 0, std::string(kMaxMessageBytes + 1, 'x')));
  EXPECT_THAT(ReadError(fd, 2, absl::StatusCode::kResourceExhausted), HasSubstr("4097 bytes"));
  Send(fd, Call(3, 0, "refuse"));
  EXPECT_EQ(ReadError(fd, 3, absl::StatusCode::kInvalidArgument), "refused");
  Header cancel;
  cancel.kind = Kind::kCancel;
  std::string frame;
  AppendHeader(cancel, &frame);
  Send(fd, frame + Call(4, 9, ""));
  EXPECT_EQ(ReadError(fd, 4, absl::StatusCode::kUnimplemented), "no method 9");
}

TEST_F(BlockingServerTest, OtherUsersAreSentAway) {
  const UniqueFd no_preface = Connect();
  Send(no_preface, "GET / HTTP/1.1\r\n");
  EXPECT_TRUE(Closed(no_preface));

  const UniqueFd server = ConnectAndGreet();
  Header header;
  header.kind = Kind::kReply;
  std::string frame;
  AppendHeader(header, &frame);
  Send(server, frame);
  EXPECT_TRUE(Closed(server));
}

TEST_F(BlockingServerTest, GarbageDoesNotHarmOtherConnections) {
  const auto seed = static_cast<uint32_t>(absl::ToUnixNanos(absl::Now()));
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const UniqueFd fd = Connect();
    std::string bytes(kPreface);
    for (int i = 0; i < 100; ++i) bytes += static_cast<char>(random() % (round % 2 ? 256 : 4));
    Send(fd, bytes);
    shutdown(fd.get(), SHUT_WR);
    Read(fd, size_t{1} << 20);  // until the server closes it
  }
  const UniqueFd fd = ConnectAndGreet();
  Send(fd, Call(1, 5, ""));
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kUnimplemented), "no method 5");
}

TEST_F(BlockingServerTest, MoreThanItTakesAreClosedAndPlacesBecomeFree) {
  UniqueFd first = ConnectAndCall();
  const UniqueFd second = ConnectAndCall();
  const UniqueFd third = ConnectAndCall();
  EXPECT_TRUE(Closed(Connect()));
  first = UniqueFd();
  const Instant deadline = Clock::Steady().Now() + kSoon;
  // Retries until the first connection's thread has ended.
  while (true) {
    const UniqueFd next = Connect();
    send(next.get(), kPreface.data(), kPreface.size(), MSG_NOSIGNAL);
    if (Read(next, kPreface.size()) == kPreface) break;
    ASSERT_LT(Clock::Steady().Now(), deadline);
  }
}

// Strangers could take all threads otherwise.
TEST_F(BlockingServerTest, ConnectionsWithoutACallWithRightsMakeRoom) {
  const UniqueFd used = ConnectAndCall();
  const UniqueFd silent = ConnectAndGreet();
  const UniqueFd denied = ConnectAndGreet();
  Send(denied, Call(1, 0, "deny"));
  EXPECT_EQ(ReadError(denied, 1, absl::StatusCode::kPermissionDenied), "denied");
  const UniqueFd fourth = ConnectAndCall();
  EXPECT_TRUE(Closed(silent));
  const UniqueFd fifth = ConnectAndCall();
  EXPECT_TRUE(Closed(denied));
  Send(used, Call(2, 0, "still here"));
  EXPECT_EQ(Read(used, ReadHeader(used).body_bytes), "still here");
}

TEST_F(BlockingServerTest, ConnectionsThatEndGiveTheirDescriptorsBackAtOnce) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const ptrdiff_t before = open();
  {
    const UniqueFd first = ConnectAndGreet();
    const UniqueFd second = ConnectAndGreet();
    const UniqueFd third = ConnectAndGreet();
    EXPECT_EQ(open(), before + 6);
  }
  // No other connection comes meanwhile.
  const Instant deadline = Clock::Steady().Now() + kSoon;
  while (open() != before) {
    ASSERT_LT(Clock::Steady().Now(), deadline)
        << open() << " descriptors are open; there were " << before;
    absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST_F(BlockingServerTest, WithoutAThreadTheConnectionIsClosedAndTheNextIsServed) {
  {
    const testing::NoNewThreads refuse;
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(Closed(Connect()));
  }
  const UniqueFd fd = ConnectAndGreet();
  Send(fd, Call(1, 5, ""));
  EXPECT_EQ(ReadError(fd, 1, absl::StatusCode::kUnimplemented), "no method 5");
}

TEST_F(BlockingServerTest, StopEndsIdleConnectionsAtOnce) {
  const UniqueFd greeted = ConnectAndGreet();
  const UniqueFd silent = Connect();
  const Instant begin = Clock::Steady().Now();
  server_.Stop(absl::Seconds(10));
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(8));
  EXPECT_TRUE(Closed(greeted));
  EXPECT_TRUE(Closed(silent));
  EXPECT_TRUE(Closed(Connect()));
}

TEST_F(BlockingServerTest, StopAnswersRunningCallsWithinItsGrace) {
  const UniqueFd busy = ConnectAndGreet();
  const UniqueFd idle = ConnectAndGreet();
  Send(busy, Call(1, 0, "wait for Stop"));
  ASSERT_TRUE(handler_.AwaitWaiting());
  std::thread stop([this] { server_.Stop(kSoon); });
  EXPECT_TRUE(Closed(idle));
  handler_.Release();
  const Header reply = ReadHeader(busy);
  EXPECT_EQ(reply.call, 1);
  EXPECT_EQ(Read(busy, reply.body_bytes), "wait for Stop");
  EXPECT_TRUE(Closed(busy));
  stop.join();
}

TEST_F(BlockingServerTest, StopDisconnectsRunningCallsAfterItsGrace) {
  const UniqueFd fd = ConnectAndGreet();
  Send(fd, Call(1, 0, "wait for Stop"));
  ASSERT_TRUE(handler_.AwaitWaiting());
  std::thread stop([this] { server_.Stop(absl::Milliseconds(20)); });
  EXPECT_TRUE(Closed(fd)) << "while the call still runs";
  handler_.Release();
  stop.join();
}

}  // namespace
}  // namespace cohort::framed_rpc
