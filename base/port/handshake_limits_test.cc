// The limits of clients that have not finished a TLS handshake, or that only have done that. One
// file, though long: all tests take one client through its handshake by hand.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/port/client_hello.h"
#include "base/port/listener.h"
#include "base/port/peer/listener_peer.h"
#include "base/port/socket/listen_address.h"
#include "base/port/socket/listen_socket.h"
#include "base/threads/mutex.h"
#include "base/threads/notification.h"
#include "base/tls/stream_socket.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::string_view kPreface = "TEST/1.0";  // of a protocol beside gRPC

ProtocolMatch MatchTest(absl::string_view first) { return MatchPreface(first, kPreface); }

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr int kTimeoutMs = 20000;
constexpr int64_t kHandshakeBytes = 96 << 10;
// The headers of a ClientHello of 508 bytes, which do not come.
constexpr absl::string_view kHelloHeader("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9);

class HandshakeLimitsTest : public ::testing::Test {
 protected:
  // No test waits for the preface timeout.
  static ListenerOptions Patient() {
    ListenerOptions options;
    options.preface_timeout = absl::Hours(1);
    return options;
  }
  // After the first failed handshake of an address, its debt stays too high.
  static ListenerOptions Unforgiving() {
    ListenerOptions options = Patient();
    options.failed_handshakes.share = 1e-12;
    options.failed_handshakes.burst = absl::Nanoseconds(1);
    return options;
  }

  void Start(ListenerOptions options) {
    auto server =
        TlsContext::Load(ca_.Sign("server", {"server", "DNS:localhost"}), TlsSide::kServer);
    auto client = TlsContext::Load(ca_.Sign("client", {"client", "DNS:client"}), TlsSide::kClient);
    ASSERT_TRUE(server.ok() && client.ok()) << server.status() << client.status();
    options.tls = *std::move(server);
    client_ = *std::move(client);
    options.on_incoming_bytes = [this](int64_t more) {
      MutexLock lock(&mutex_);
      charged_ += more;
      ever_charged_ = true;
    };
    const auto address = ParseListenAddress("127.0.0.1:0");
    ASSERT_TRUE(address.ok());
    auto sockets = ListenSocket::Open(*address);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    port_ = sockets->front().port();
    ListenerSinks sinks;
    sinks.protocols.push_back({MatchTest,
                               [this](int fd, ListenerPeer peer) {
                                 if (Hold* const hold = NextHold(); hold != nullptr) {
                                   hold->begun.Notify();
                                   hold->end.WaitWithTimeout(kTimeout);
                                 }
                                 MutexLock lock(&mutex_);
                                 served_.push_back({UniqueFd(fd), std::move(peer)});
                               },
                               /*notes_requests=*/true});
    sinks.grpc = [](int fd, int) { close(fd); };
    listener_ = std::make_unique<Listener>(*std::move(sockets), std::move(sinks), options);
  }

  // Connects from a loopback address, and sends `first`.
  UniqueFd Connect(absl::string_view first = "", const char* from = "127.0.0.1") {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    Send(fd, first);
    return fd;
  }
  static void Send(const UniqueFd& fd, absl::string_view bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  std::shared_ptr<TlsSession> SessionOver(int fd) {
    return TlsSession::ConnectToAny(client_->Current(absl::UnixEpoch()), fd);
  }
  // Makes the client's side of the handshake. False: it failed.
  static bool Finish(TlsSession& session, const UniqueFd& fd) {
    while (true) {
      switch (session.Handshake()) {
        case TlsSession::Progress::kDone:
          return true;
        case TlsSession::Progress::kFailed:
          return false;
        case TlsSession::Progress::kWantInput:
        case TlsSession::Progress::kWantOutput:
          pollfd waited{fd.get(), POLLIN, 0};
          if (poll(&waited, 1, kTimeoutMs) <= 0) return false;
      }
    }
  }
  // A client that has made its handshake and sent the preface of framed RPC.
  UniqueFd ConnectByTls(const char* from = "127.0.0.1") {
    UniqueFd fd = Connect("", from);
    const std::shared_ptr<TlsSession> session = SessionOver(fd.get());
    EXPECT_TRUE(Finish(*session, fd)) << session->error();
    EXPECT_EQ(session->Send(kPreface), 8);
    return fd;
  }
  // Whether the listener closes the connection in time. Drops the bytes that it sends before.
  static bool Closed(const UniqueFd& fd, int timeout_ms = kTimeoutMs) {
    while (true) {
      pollfd waited{fd.get(), POLLIN | POLLRDHUP, 0};
      if (poll(&waited, 1, timeout_ms) <= 0) return false;
      char bytes[512];
      const ssize_t count = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    }
  }
  // Whether the listener closes the connection, and logs `why`.
  bool IsRefused(absl::string_view first, const std::string& why) {
    ::testing::internal::CaptureStdout();  // the log of a program that has not set it up
    const UniqueFd fd = Connect(first);
    const bool closed = Closed(fd);  // the line is there by then
    EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr(why));
    return closed;
  }
  // Waits until `count` connections were handed to the server.
  bool AwaitServed(size_t count) {
    MutexLock lock(&mutex_);
    const auto enough = [&] { return served_.size() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kTimeout);
  }
  // Waits until unfinished handshakes are charged with `bytes`.
  bool AwaitCharged(int64_t bytes) {
    MutexLock lock(&mutex_);
    const auto reached = [&] { return charged_ == bytes; };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), kTimeout);
  }
  bool ever_charged() {
    MutexLock lock(&mutex_);
    return ever_charged_;
  }

  struct Served {
    UniqueFd fd;
    ListenerPeer peer;
  };
  // Keeps the listener's thread in the server of a connection.
  struct Hold {
    Notification begun;
    Notification end;
  };

  Hold* NextHold() {
    MutexLock lock(&mutex_);
    if (holds_.empty()) return nullptr;
    Hold* const hold = holds_.front();
    holds_.pop_front();
    return hold;
  }

  const testing::CertificateAuthority ca_{::testing::TempDir()};
  std::unique_ptr<TlsContext> client_;
  int port_ = 0;
  Mutex mutex_;
  int64_t charged_ = 0;
  bool ever_charged_ = false;
  std::vector<Served> served_;
  std::deque<Hold*> holds_;  // of the next connections
  std::unique_ptr<Listener> listener_;
};

TEST_F(HandshakeLimitsTest, ThePrefaceMayComeInSeveralRecords) {
  Start(Patient());
  for (size_t cut = 1; cut < kPreface.size(); ++cut) {
    const UniqueFd fd = Connect();
    const std::shared_ptr<TlsSession> session = SessionOver(fd.get());
    ASSERT_TRUE(Finish(*session, fd)) << session->error();
    EXPECT_GT(session->Send(kPreface.substr(0, cut)), 0);
    EXPECT_GT(session->Send(kPreface.substr(cut)), 0);
    ASSERT_TRUE(AwaitServed(cut)) << "cut at " << cut;
    const std::shared_ptr<TlsSession>& served = served_.back().peer.tls;
    char bytes[16];
    EXPECT_EQ(served->Receive(bytes, sizeof(bytes)), 8);
    EXPECT_EQ(absl::string_view(bytes, 8), kPreface);
  }
}

TEST_F(HandshakeLimitsTest, TheServerLearnsTheEndOfTheCertificate) {
  ListenerOptions options = Patient();
  options.access = AccessPolicy::WithoutFile();
  Start(options);
  const UniqueFd client = ConnectByTls();
  ASSERT_TRUE(AwaitServed(1));
  MutexLock lock(&mutex_);
  const absl::Time ends = served_[0].peer.access->certificate_ends();
  EXPECT_GT(ends, absl::Now());
  EXPECT_LE(ends, absl::Now() + absl::Hours(1));
}

// The bytes of the handshake are no request.
TEST_F(HandshakeLimitsTest, AtTheLimitConnectionsWithoutACallMakeRoom) {
  ListenerOptions options = Patient();
  options.max_connections = 4;
  options.max_connections_per_peer = 4;
  Start(options);
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < 4; ++i) {
    clients.push_back(ConnectByTls());
    ASSERT_TRUE(AwaitServed(i + 1));
  }
  served_[0].peer.NoteRequest();
  clients.push_back(ConnectByTls());
  ASSERT_TRUE(AwaitServed(5));
  EXPECT_TRUE(Closed(clients[1]));
  EXPECT_FALSE(Closed(clients[0], 0));
  // The newcomer is refused if all have made a call.
  for (const Served& served : served_) served.peer.NoteRequest();
  EXPECT_TRUE(Closed(Connect()));
}

TEST_F(HandshakeLimitsTest, AHelloThatAnnouncesMuchIsRefusedBeforeItIsCharged) {
  Start(Patient());
  EXPECT_TRUE(IsRefused(absl::string_view("\x16\x03\x01\x02\x00\x01\x00\x40\x01", 9),
                        "announces a ClientHello of 16385 bytes, and the limit is 16384"));
  EXPECT_FALSE(ever_charged());
  const UniqueFd allowed = Connect(absl::string_view("\x16\x03\x01\x02\x00\x01\x00\x40\x00", 9));
  EXPECT_TRUE(AwaitCharged(kHandshakeBytes));
  EXPECT_FALSE(Closed(allowed, 0));
}

TEST_F(HandshakeLimitsTest, AHandshakeThatBeginsWithoutAHelloIsRefused) {
  Start(Patient());
  EXPECT_TRUE(IsRefused(absl::string_view("\x16\x03\x01\x02\x00\x02\x00\x01\xfc", 9),
                        "does not begin with a ClientHello"));
  EXPECT_FALSE(ever_charged());
}

// The listener sees each of the first bytes alone.
TEST_F(HandshakeLimitsTest, AHelloMayComeByteByByte) {
  Start(Patient());
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd client(pair[0]);
  const UniqueFd caught(pair[1]);
  const std::shared_ptr<TlsSession> session = SessionOver(client.get());
  ASSERT_EQ(session->Handshake(), TlsSession::Progress::kWantInput);
  char hello[4096];
  const ssize_t size = recv(caught.get(), hello, sizeof(hello), 0);
  ASSERT_GT(size, static_cast<ssize_t>(kClientHelloHeaderBytes));

  const UniqueFd fd = Connect();
  std::vector<UniqueFd> others;
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    EXPECT_EQ(ever_charged(), i >= kClientHelloHeaderBytes) << i;
    Send(fd, absl::string_view(hello + i, 1));
    if (i + 1 > kClientHelloHeaderBytes) continue;
    // The thread that serves this one has seen the byte.
    others.push_back(Connect(kPreface));
    ASSERT_TRUE(AwaitServed(others.size()));
  }
  ASSERT_EQ(dup2(fd.get(), client.get()), client.get());
  ASSERT_TRUE(Finish(*session, client)) << session->error();
  EXPECT_EQ(session->Send(kPreface), 8);
  EXPECT_TRUE(AwaitServed(others.size() + 1));
}

TEST_F(HandshakeLimitsTest, AClientThatLeavesWithinItsFirstBytesIsNotWaitedFor) {
  Start(Patient());
  const UniqueFd fd = Connect(kHelloHeader.substr(0, 8));
  shutdown(fd.get(), SHUT_WR);
  EXPECT_TRUE(Closed(fd));
}

TEST_F(HandshakeLimitsTest, HandshakesThatLeadToNoCallAreADebt) {
  Start(Unforgiving());
  const UniqueFd fd = ConnectByTls();
  ASSERT_TRUE(AwaitServed(1));
  EXPECT_TRUE(IsRefused(kHelloHeader, "too many TLS handshakes of this address have failed or"));
  {
    MutexLock lock(&mutex_);
    served_[0].peer.NoteRequest();
  }
  // The listener looks for calls twice a second.
  const absl::Time end = absl::Now() + kTimeout;
  bool admitted = false;
  while (!admitted && absl::Now() < end) {
    const UniqueFd next = Connect();
    const std::shared_ptr<TlsSession> session = SessionOver(next.get());
    admitted = Finish(*session, next);
  }
  EXPECT_TRUE(admitted);
}

TEST_F(HandshakeLimitsTest, AHandshakeIsChargedUntilItIsDone) {
  Start(Patient());
  const UniqueFd fd = ConnectByTls();
  ASSERT_TRUE(AwaitServed(1));
  EXPECT_TRUE(ever_charged());
  MutexLock lock(&mutex_);
  EXPECT_EQ(charged_, 0);
}

TEST_F(HandshakeLimitsTest, AHandshakeIsChargedUntilItsConnectionLeaves) {
  Start(Patient());
  UniqueFd first = Connect(kHelloHeader);
  ASSERT_TRUE(AwaitCharged(kHandshakeBytes));
  const UniqueFd second = Connect(kHelloHeader);
  ASSERT_TRUE(AwaitCharged(2 * kHandshakeBytes));
  first = UniqueFd();
  EXPECT_TRUE(AwaitCharged(kHandshakeBytes));
  listener_.reset();
  EXPECT_TRUE(AwaitCharged(0));
}

TEST_F(HandshakeLimitsTest, UnfinishedHandshakesOfAnAddressHaveALimit) {
  ListenerOptions options = Patient();
  options.max_incoming_bytes = 320 << 10;  // two handshakes fit into three quarters
  Start(options);
  UniqueFd first = Connect(kHelloHeader);
  const UniqueFd second = Connect(kHelloHeader);
  ASSERT_TRUE(AwaitCharged(2 * kHandshakeBytes));
  // Further ones wait until one of them ends, also if one of those that wait has gone.
  UniqueFd gone = Connect(kHelloHeader);
  const UniqueFd third = Connect();
  const std::shared_ptr<TlsSession> session = SessionOver(third.get());
  ASSERT_EQ(session->Handshake(), TlsSession::Progress::kWantInput);
  const UniqueFd other = ConnectByTls("127.0.0.2");
  EXPECT_TRUE(AwaitServed(1));
  EXPECT_FALSE(Closed(third, 0));
  gone = UniqueFd();
  first = UniqueFd();
  ASSERT_TRUE(Finish(*session, third)) << session->error();
  EXPECT_EQ(session->Send(kPreface), 8);
  EXPECT_TRUE(AwaitServed(2));
  EXPECT_TRUE(AwaitCharged(kHandshakeBytes));
}

// It is called when a place is free, and another client has the place before its turn comes.
TEST_F(HandshakeLimitsTest, AHandshakeWhosePlaceIsTakenWaitsAgain) {
  ListenerOptions options = Patient();
  options.max_incoming_bytes = 320 << 10;  // two handshakes fit into three quarters
  Start(options);
  UniqueFd first = Connect(kHelloHeader);
  UniqueFd second = Connect(kHelloHeader);
  ASSERT_TRUE(AwaitCharged(2 * kHandshakeBytes));
  const UniqueFd waiting = Connect();
  const std::shared_ptr<TlsSession> session = SessionOver(waiting.get());
  ASSERT_EQ(session->Handshake(), TlsSession::Progress::kWantInput);
  const UniqueFd taker = Connect(kHelloHeader.substr(0, 5));
  // The listener sees the end of the first handshake and the second hold together, and what the
  // taker sends meanwhile only when it has called the one that waits.
  Hold hold, next;
  UniqueFd held[2];
  std::shared_ptr<TlsSession> sessions[2];
  for (int i = 0; i < 2; ++i) {
    held[i] = Connect("", "127.0.0.2");
    sessions[i] = SessionOver(held[i].get());
    ASSERT_TRUE(Finish(*sessions[i], held[i])) << sessions[i]->error();
    ASSERT_TRUE(AwaitCharged(2 * kHandshakeBytes));  // the listener has finished, too
  }
  {
    MutexLock lock(&mutex_);
    holds_ = {&hold, &next};
  }
  ASSERT_EQ(sessions[0]->Send(kPreface), 8);
  ASSERT_TRUE(hold.begun.WaitWithTimeout(kTimeout));
  first = UniqueFd();
  ASSERT_EQ(sessions[1]->Send(kPreface), 8);
  hold.end.Notify();
  ASSERT_TRUE(next.begun.WaitWithTimeout(kTimeout));
  Send(taker, kHelloHeader.substr(5));
  next.end.Notify();
  ASSERT_TRUE(AwaitServed(2));
  ASSERT_TRUE(AwaitCharged(2 * kHandshakeBytes));
  second = UniqueFd();
  ASSERT_TRUE(Finish(*session, waiting)) << session->error();
  EXPECT_EQ(session->Send(kPreface), 8);
  EXPECT_TRUE(AwaitServed(3));
  EXPECT_TRUE(AwaitCharged(kHandshakeBytes));
}

// Those of several addresses together do not keep the clients of others out.
TEST_F(HandshakeLimitsTest, TheAddressWithTheMostUnfinishedHandshakesMakesRoom) {
  ListenerOptions options = Patient();
  options.max_incoming_bytes = 384 << 10;  // four handshakes; three of one address
  Start(options);
  const UniqueFd other = Connect(kHelloHeader, "127.0.0.3");
  ASSERT_TRUE(AwaitCharged(kHandshakeBytes));
  std::vector<UniqueFd> most;
  for (int i = 2; i <= 4; ++i) {
    most.push_back(Connect(kHelloHeader, "127.0.0.2"));
    ASSERT_TRUE(AwaitCharged(i * kHandshakeBytes));
  }
  const UniqueFd client = ConnectByTls();
  EXPECT_TRUE(AwaitServed(1));
  EXPECT_TRUE(Closed(most[0]));
  EXPECT_TRUE(AwaitCharged(3 * kHandshakeBytes));
  EXPECT_FALSE(Closed(most[1], 0));
  EXPECT_FALSE(Closed(other, 0));
}

TEST_F(HandshakeLimitsTest, AnAddressWhoseHandshakesFailIsRefused) {
  Start(Unforgiving());
  const UniqueFd early = Connect();
  ASSERT_TRUE(Closed(Connect(absl::StrCat(kHelloHeader, std::string(508, 'x')))));
  EXPECT_TRUE(Closed(Connect(kHelloHeader)));
  // A connection that was accepted before begins no handshake.
  Send(early, kHelloHeader);
  EXPECT_TRUE(Closed(early));
  const UniqueFd other = ConnectByTls("127.0.0.2");
  EXPECT_TRUE(AwaitServed(1));
  // Plain clients of this machine are served: a health check must not fail with them.
  const UniqueFd plain = Connect(kPreface);
  EXPECT_TRUE(AwaitServed(2));
}

TEST_F(HandshakeLimitsTest, TheLogNamesTheReasonAfterFailedHandshakes) {
  // The end of a handshake that takes too long has no line of its own. An address has one a minute.
  ListenerOptions options = Unforgiving();
  options.preface_timeout = absl::Milliseconds(1);
  Start(options);
  EXPECT_TRUE(Closed(Connect(kHelloHeader)));
  EXPECT_TRUE(IsRefused(kHelloHeader, "too many TLS handshakes of this address have failed"));
}

TEST_F(HandshakeLimitsTest, OnlyHandshakesCount) {
  Start(Unforgiving());
  EXPECT_TRUE(Closed(Connect("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(Closed(Connect(absl::string_view("\x16\x03\x01\x02\x00\x02\x00\x01\xfc", 9))));
  const UniqueFd first = ConnectByTls();
  EXPECT_TRUE(AwaitServed(1));
}

}  // namespace
}  // namespace cohort
