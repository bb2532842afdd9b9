#include "base/port/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/socket/listen_address.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::string_view kPreface = "TEST/1.0";  // of a protocol beside gRPC

ProtocolMatch MatchTest(absl::string_view first) { return MatchPreface(first, kPreface); }

constexpr absl::Duration kTimeout = absl::Seconds(20);

class ListenerTest : public ::testing::Test {
 protected:
  void Start(ListenerOptions options) {
    auto address = ParseListenAddress("127.0.0.1:0");
    ASSERT_TRUE(address.ok());
    auto sockets = ListenSocket::Open(*address);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    port_ = sockets->front().port();
    ListenerSinks sinks;
    sinks.protocols.push_back({MatchTest,
                               [this](int fd, ListenerPeer peer) {
                                 framed_peer_ = std::move(peer);
                                 Take(fd, framed_);
                               },
                               /*notes_requests=*/true});
    sinks.grpc = [this](int fd, int) { Take(fd, http2_); };
    if (extra_protocol_.has_value()) sinks.protocols.push_back(*extra_protocol_);
    listener_ = std::make_unique<Listener>(*std::move(sockets), std::move(sinks), options);
  }

  UniqueFd Connect(absl::string_view first = "") {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(send(fd.get(), first.data(), first.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(first.size()));
    return fd;
  }

  // Whether the listener closes the connection in time. Drops the bytes that it sends before.
  static bool Closed(const UniqueFd& fd, absl::Duration timeout = kTimeout) {
    while (true) {
      pollfd waited{fd.get(), POLLIN | POLLRDHUP, 0};
      const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(timeout));
      if (poll(&waited, 1, milliseconds) <= 0) return false;
      char bytes[512];
      const ssize_t count = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    }
  }

  // Waits until `count` were handed to a server.
  bool Await(const std::vector<UniqueFd>& taken, size_t count) {
    MutexLock lock(&mutex_);
    const auto enough = [&] { return taken.size() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kTimeout);
  }

  int port_ = 0;
  Mutex mutex_;
  std::vector<UniqueFd> framed_;
  ListenerPeer framed_peer_;  // of the last one
  std::vector<UniqueFd> http2_;
  std::vector<UniqueFd> extra_;
  std::optional<ListenerProtocol> extra_protocol_;
  std::unique_ptr<Listener> listener_;

  void Take(int fd, std::vector<UniqueFd>& taken) {
    MutexLock lock(&mutex_);
    taken.emplace_back(fd);
  }
};

TEST_F(ListenerTest, RoutesByThePrefaceAndClosesOtherConnections) {
  Start({});
  const UniqueFd framed = Connect(kPreface);
  const UniqueFd http2 = Connect(kHttp2Preface);
  const UniqueFd other = Connect("GET / HTTP/1.1\r\n");
  const UniqueFd almost = Connect("PRI * HTTP/2.1\r\n");
  EXPECT_TRUE(Await(framed_, 1));
  EXPECT_TRUE(Await(http2_, 1));
  // A framed RPC client learns from HTTP/2's first frame that the server has no framed RPC.
  char frame[9] = {};
  EXPECT_EQ(recv(other.get(), frame, sizeof(frame), MSG_WAITALL), 9);
  EXPECT_EQ(std::string(frame, sizeof(frame)), std::string("\0\0\0\4\0\0\0\0\0", 9));
  EXPECT_TRUE(Closed(other));
  EXPECT_TRUE(Closed(almost));
}

TEST_F(ListenerTest, AProxyTellsTheAddressOfItsClient) {
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.0/8").value()};
  options.max_connections_per_peer = 1;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const std::string header = "PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\n";
  const UniqueFd whole = Connect(header + std::string(kPreface));
  ASSERT_TRUE(Await(framed_, 1));
  EXPECT_EQ(framed_peer_.address, "10.0.0.7:41822");
  // The limit counts clients of the proxy, not the proxy: this one is another client.
  const UniqueFd in_parts = Connect("PROXY TCP4 10.0.0.8 10.");
  const std::string rest = "0.0.1 41823 7700\r\n" + std::string(kPreface);
  ASSERT_EQ(send(in_parts.get(), rest.data(), rest.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(rest.size()));
  ASSERT_TRUE(Await(framed_, 2));
  EXPECT_EQ(framed_peer_.address, "10.0.0.8:41823");
  // A connection without a header, and with half of one.
  EXPECT_TRUE(Closed(Connect(kPreface)));
  const UniqueFd half = Connect(header.substr(0, 10));
  shutdown(half.get(), SHUT_WR);
  EXPECT_TRUE(Closed(half));
  // The checks of the proxy itself.
  const UniqueFd own = Connect("PROXY UNKNOWN\r\n" + std::string(kPreface));
  ASSERT_TRUE(Await(framed_, 3));
  EXPECT_TRUE(absl::StartsWith(framed_peer_.address, "127.0.0.1:")) << framed_peer_.address;
}

// Its header moves the connection to another address, and it is the same connection.
TEST_F(ListenerTest, AConnectionOfAProxyNeedsOnePlace) {
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.1").value()};
  options.max_connections = options.max_connections_per_peer = 2;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const UniqueFd silent = Connect("PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\n");
  const UniqueFd client =
      Connect("PROXY TCP4 10.0.0.8 10.0.0.1 41823 7700\r\n" + std::string(kPreface));
  ASSERT_TRUE(Await(framed_, 1));
  EXPECT_FALSE(Closed(silent, absl::ZeroDuration()));
}

TEST_F(ListenerTest, TheClientsOfAProxyHaveTheLimitOfTheirAddress) {
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.1").value()};
  options.max_connections_per_peer = 1;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const std::string header = "PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\n";
  const UniqueFd first = Connect(header + std::string(kPreface));
  ASSERT_TRUE(Await(framed_, 1));
  const UniqueFd second = Connect(header + std::string(kPreface));
  ASSERT_TRUE(Await(framed_, 2));
  EXPECT_TRUE(Closed(first));
}

// A host has 2^64 addresses of its own.
TEST_F(ListenerTest, ClientsOfOneIpv6NetworkCountAsOneAddress) {
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.1").value()};
  options.max_connections_per_peer = 1;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  std::vector<UniqueFd> clients;
  for (const char* address : {"2001:db8::7", "2001:db8:0:1::7", "2001:db8::ffff:8"}) {
    clients.push_back(
        Connect(absl::StrCat("PROXY TCP6 ", address, " 2001:db8::1 41822 7700\r\n", kPreface)));
    ASSERT_TRUE(Await(framed_, clients.size()));
    EXPECT_EQ(framed_peer_.address, absl::StrCat("[", address, "]:41822"));
  }
  EXPECT_TRUE(Closed(clients[0]));
  EXPECT_FALSE(Closed(clients[1], absl::ZeroDuration()));
}

TEST_F(ListenerTest, AtItsLimitAProxyLosesNoConnectionOfAnotherClient) {
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.1").value()};
  options.max_connections_per_peer = 2;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const UniqueFd silent = Connect("PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\n");
  const UniqueFd client =
      Connect("PROXY TCP4 10.0.0.8 10.0.0.1 41823 7700\r\n" + std::string(kPreface));
  ASSERT_TRUE(Await(framed_, 1));  // by now the header of the silent one has been read, too
  std::vector<UniqueFd> halves;
  for (int i = 0; i < 3; ++i) halves.push_back(Connect("PROXY TCP4 10."));
  EXPECT_TRUE(Closed(halves[0]));
  EXPECT_FALSE(Closed(silent, absl::ZeroDuration()));
  EXPECT_FALSE(Closed(halves[1], absl::ZeroDuration()));
}

// A client of a proxy of this machine is not of this machine.
TEST_F(ListenerTest, AClientOfALocalProxyIsNotLocal) {
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.1").value()};
  options.plain = false;
  Start(options);
  EXPECT_TRUE(
      Closed(Connect("PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\n" + std::string(kPreface))));
  const UniqueFd own = Connect("PROXY UNKNOWN\r\n" + std::string(kPreface));
  EXPECT_TRUE(Await(framed_, 1));
}

TEST_F(ListenerTest, ATenantLeavesOthersAQuarterOfTheBytesOfIncompleteRequests) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/tenant.json");
  std::ofstream(path)
      << R"({"rules": [{"identity": "anonymous", "tenant": "a", "role": "member"}]})";
  auto policy = AccessPolicy::Load(path);
  ASSERT_TRUE(policy.ok()) << policy.status();
  ListenerOptions options;
  options.access = *std::move(policy);
  options.max_incoming_bytes = 1000;
  options.proxies = {IpNetwork::Parse("127.0.0.0/8").value()};
  Start(options);
  std::vector<UniqueFd> clients;
  std::vector<IncomingCharge> charges;
  for (const char* address : {"10.0.0.7", "10.0.0.8"}) {
    clients.push_back(
        Connect(absl::StrCat("PROXY TCP4 ", address, " 10.0.0.1 41822 7700\r\n", kPreface)));
    ASSERT_TRUE(Await(framed_, clients.size()));
    charges.emplace_back(framed_peer_.charged());
    charges.back().Set(400);
  }
  EXPECT_EQ(
      charges.back().all()->Check().message(),
      "requests that are not complete are over max_incoming_bytes_per_tenant (750): they hold "
      "800 bytes");
}

// Strangers may have any number of addresses, and refusals of all of them share ten lines a second.
TEST_F(ListenerTest, RefusalsOfManyAddressesHaveFewLinesInTheLog) {
  constexpr int kAddresses = 1000;
  ListenerOptions options;
  options.proxies = {IpNetwork::Parse("127.0.0.1").value()};
  options.plain = false;
  Start(options);
  const Instant begin = Clock::Steady().Now();
  ::testing::internal::CaptureStdout();  // the log of a program that has not set it up
  for (int i = 0; i < kAddresses; ++i) {
    EXPECT_TRUE(Closed(Connect(absl::StrCat("PROXY TCP4 10.0.", i / 250, ".", i % 250 + 1,
                                            " 10.0.0.1 41822 7700\r\n", kPreface))));
  }
  const std::string log = ::testing::internal::GetCapturedStdout();
  const absl::Duration passed = Clock::Steady().Now() - begin;
  int lines = 0;
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    lines += absl::StrContains(line, "refused a connection") ? 1 : 0;
  }
  EXPECT_GE(lines, 1);
  // The first line, and one for each 0.1 s that have passed since.
  EXPECT_LE(lines, 1 + passed / absl::Milliseconds(100)) << passed;
}

TEST_F(ListenerTest, AnIncompletePrefaceIsClosedInTime) {
  ListenerOptions options;
  options.preface_timeout = absl::Milliseconds(100);
  Start(options);
  const UniqueFd silent = Connect();
  const UniqueFd half = Connect(kHttp2Preface.substr(0, 10));
  EXPECT_TRUE(Closed(silent));
  EXPECT_TRUE(Closed(half));
}

TEST_F(ListenerTest, APeerThatEndsWithinItsPrefaceIsNotWaitedFor) {
  ListenerOptions options;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const UniqueFd half = Connect(kHttp2Preface.substr(0, 10));
  shutdown(half.get(), SHUT_WR);
  EXPECT_TRUE(Closed(half));
}

// Connections that begin with "x" are of the extra protocol; "xs" has silent connections, too.
TEST_F(ListenerTest, AnExtraProtocolMayHaveSilentConnections) {
  ListenerOptions options;
  options.preface_timeout = absl::Milliseconds(100);
  ListenerProtocol protocol;
  protocol.match = [](absl::string_view first) {
    if (first.front() != 'x') return ProtocolMatch::kOther;
    if (first.size() < 2) return ProtocolMatch::kUndecided;
    return first[1] == 's' ? ProtocolMatch::kMatchWithSilent : ProtocolMatch::kMatch;
  };
  protocol.sink = [this](int fd, ListenerPeer) { Take(fd, extra_); };
  extra_protocol_ = std::move(protocol);
  Start(options);
  const UniqueFd plain = Connect("xp");
  ASSERT_TRUE(Await(extra_, 1));
  EXPECT_TRUE(Closed(Connect()));
  EXPECT_TRUE(Closed(Connect("x")));
  EXPECT_TRUE(Closed(Connect("y")));
  const UniqueFd split = Connect("x");
  ASSERT_EQ(send(split.get(), "s", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(Await(extra_, 2));
  const UniqueFd silent = Connect();
  EXPECT_FALSE(Closed(silent, absl::Seconds(1)));  // ten times the timeout
}

TEST_F(ListenerTest, AtTheLimitTheOldestWithoutARequestMakesRoom) {
  ListenerOptions options;
  options.max_connections = 6;
  options.max_connections_per_peer = 6;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const UniqueFd framed = Connect(kPreface);
  ASSERT_TRUE(Await(framed_, 1));
  framed_peer_.NoteRequest();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(Connect());
  std::vector<UniqueFd> more;
  for (int i = 0; i < 5; ++i) more.push_back(Connect(kHttp2Preface));
  EXPECT_TRUE(Await(http2_, 5));
  for (const UniqueFd& fd : silent) EXPECT_TRUE(Closed(fd));
  // Connections that sent only HTTP/2's preface are next; the connection of framed RPC stays.
  const UniqueFd last = Connect(kHttp2Preface);
  EXPECT_TRUE(Await(http2_, 6));
  EXPECT_TRUE(Closed(more[0]));
  EXPECT_FALSE(Closed(framed, absl::ZeroDuration()));
}

TEST_F(ListenerTest, ConnectionsWithRequestsAreKeptAndTheNewcomerIsRefused) {
  ListenerOptions options;
  options.max_connections = 6;
  options.max_connections_per_peer = 2;
  Start(options);
  std::vector<UniqueFd> kept;
  for (int i = 0; i < 2; ++i) {
    kept.push_back(Connect(kPreface));
    ASSERT_TRUE(Await(framed_, i + 1));
    framed_peer_.NoteRequest();
  }
  // More than may wait to be looked at.
  for (int i = 0; i < 1100; ++i) ASSERT_TRUE(Closed(Connect())) << i;
  // Once one has gone there is room, when the listener looks at all again.
  {
    MutexLock lock(&mutex_);
    framed_.erase(framed_.begin());
  }
  UniqueFd again;
  const Instant end = Clock::Steady().Now() + kTimeout;
  do {
    again = Connect(kPreface);
  } while (Closed(again, absl::Milliseconds(10)) && Clock::Steady().Now() < end);
  EXPECT_TRUE(Await(framed_, 2));
}

TEST_F(ListenerTest, TheClientOfARelayedConnectionGetsTheReasonOfItsEnd) {
  Start({});
  const UniqueFd client = Connect(kHttp2Preface);
  ASSERT_TRUE(Await(http2_, 1));
  // Empty settings, without end.
  std::string flood;
  for (int i = 0; i < 1000; ++i) flood += std::string("\0\0\0\4\0\0\0\0\0", 9);
  ASSERT_EQ(send(client.get(), flood.data(), flood.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(flood.size()));
  pollfd waited{client.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(kTimeout))), 1);
  std::string received(4096, '\0');
  received.resize(static_cast<size_t>(
      std::max<ssize_t>(recv(client.get(), received.data(), received.size(), MSG_DONTWAIT), 0)));
  EXPECT_NE(received.find("max_settings_per_second (100)"), std::string::npos);
  EXPECT_TRUE(Closed(client));
}

}  // namespace
}  // namespace cohort
