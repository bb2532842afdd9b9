// One file, though long: all tests connect to a listener with the same sinks.
#include "base/rpc/listener/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/rpc/listener/listen_address.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

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
    sinks.framed_rpc = [this](int fd, ListenerPeer peer) {
      framed_peer_ = std::move(peer);
      Take(fd, framed_);
    };
    sinks.grpc = [this](int fd, int) { Take(fd, http2_); };
    sinks.extra = extra_protocol_;
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
  const UniqueFd framed = Connect(framed_rpc::kPreface);
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
  const UniqueFd framed = Connect(framed_rpc::kPreface);
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
    kept.push_back(Connect(framed_rpc::kPreface));
    ASSERT_TRUE(Await(framed_, i + 1));
    framed_peer_.NoteRequest();
  }
  EXPECT_TRUE(Closed(Connect()));
  // Once one has gone there is room.
  {
    MutexLock lock(&mutex_);
    framed_.erase(framed_.begin());
  }
  const UniqueFd again = Connect(framed_rpc::kPreface);
  EXPECT_TRUE(Await(framed_, 2));
}

TEST_F(ListenerTest, BytesThatGrpcReadsAreCountedAndTheConnectionIsClosed) {
  Start({});
  const UniqueFd client = Connect(kHttp2Preface);
  ASSERT_TRUE(Await(http2_, 1));
  // Empty settings, without end.
  std::string flood;
  for (int i = 0; i < 1000; ++i) flood += std::string("\0\0\0\4\0\0\0\0\0", 9);
  ASSERT_EQ(send(client.get(), flood.data(), flood.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(flood.size()));
  char bytes[512];
  iovec part = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const Instant deadline = Clock::Steady().Now() + kTimeout;
  size_t total = 0;
  ssize_t count = 0;
  while (Clock::Steady().Now() < deadline) {
    count = recvmsg(http2_[0].get(), &message, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) continue;
    if (count <= 0) break;
    total += static_cast<size_t>(count);
  }
  EXPECT_EQ(count, -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_LE(total, kHttp2Preface.size() + 100 * 9);
  // The rest stays hidden.
  EXPECT_EQ(recvmsg(http2_[0].get(), &message, MSG_DONTWAIT), -1);
  // The client gets the reason.
  pollfd waited{client.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(kTimeout))), 1);
  std::string received(4096, '\0');
  received.resize(static_cast<size_t>(
      std::max<ssize_t>(recv(client.get(), received.data(), received.size(), MSG_DONTWAIT), 0)));
  EXPECT_NE(received.find("max_settings_per_second (100)"), std::string::npos);
}

std::string Number32(uint32_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(number >> shift));
  return text;
}
std::string OpenStream(uint32_t stream) {
  return absl::StrCat(absl::string_view("\0\0\2\1\4", 5), Number32(stream), "\x83\x86");
}
std::string ResetStream(uint32_t stream) {
  return absl::StrCat(absl::string_view("\0\0\4\3\0", 5), Number32(stream), Number32(8));
}

// Reads as gRPC does: into large buffers, and after an edge of epoll alone.
class PacedReadTest : public ListenerTest {
 protected:
  // Takes the first connection that was handed to a server.
  void Take() {
    ASSERT_TRUE(Await(http2_, 1));
    epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, http2_[0].get(), &event), 0);
  }
  // The bytes of one recvmsg, after as many edges as it takes. Empty: the end, or an error.
  std::string Read(size_t room = size_t{1} << 20) {
    const Instant deadline = Clock::Steady().Now() + kTimeout;
    std::string bytes(room, '\0');
    while (Clock::Steady().Now() < deadline) {
      iovec part = {bytes.data(), bytes.size()};
      msghdr message = {};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      const ssize_t count = recvmsg(http2_[0].get(), &message, MSG_DONTWAIT);
      if (count >= 0 || errno != EAGAIN) {
        bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
        return bytes;
      }
      ++waits_;
      epoll_event event;
      const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(kTimeout));
      if (epoll_wait(epoll_.get(), &event, 1, milliseconds) != 1) break;
    }
    ADD_FAILURE() << "no edge";
    return "";
  }
  static void SendAll(const UniqueFd& fd, const std::string& bytes) {
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Until so many bytes wait to be read.
  void AwaitArrived(size_t count) {
    std::string bytes(count, '\0');
    const Instant deadline = Clock::Steady().Now() + kTimeout;
    while (recv(http2_[0].get(), bytes.data(), count, MSG_PEEK | MSG_DONTWAIT) <
           static_cast<ssize_t>(count)) {
      ASSERT_LT(Clock::Steady().Now(), deadline);
      sched_yield();
    }
  }

  UniqueFd epoll_;
  int waits_ = 0;
};

TEST_F(PacedReadTest, ResetsReachTheReaderInPieces) {
  Start({});
  const UniqueFd client = Connect(kHttp2Preface);
  Take();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 1800; stream += 2) {
    absl::StrAppend(&sent, OpenStream(stream), ResetStream(stream));
  }
  SendAll(client, sent.substr(kHttp2Preface.size()));
  AwaitArrived(sent.size());
  std::string got = Read();
  EXPECT_EQ(waits_, 0);
  // 128 resets, and those of one more piece.
  EXPECT_LE(got.size(), 2 * 4096);
  while (got.size() < sent.size()) {
    const std::string more = Read();
    ASSERT_FALSE(more.empty());
    EXPECT_LE(more.size(), 2 * 4096);
    got += more;
  }
  EXPECT_EQ(got, sent);
  EXPECT_GE(waits_, 3);
}

TEST_F(PacedReadTest, StreamsThatAreNotResetAreReadAtOnce) {
  Start({});
  const UniqueFd client = Connect(kHttp2Preface);
  Take();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 4000; stream += 2) sent += OpenStream(stream);
  SendAll(client, sent.substr(kHttp2Preface.size()));
  AwaitArrived(sent.size());
  EXPECT_EQ(Read(), sent);
}

// gRPC takes long to end a connection with many streams, and keeps others waiting meanwhile.
TEST_F(PacedReadTest, AConnectionThatEndsHasItsStreamsResetInPieces) {
  Start({});
  UniqueFd client = Connect(kHttp2Preface);
  Take();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 800; stream += 2) sent += OpenStream(stream);
  SendAll(client, sent.substr(kHttp2Preface.size()));
  AwaitArrived(sent.size());
  EXPECT_EQ(Read(), sent);
  client = UniqueFd();
  std::string frames;
  while (true) {
    // gRPC also reads into the rest of a buffer.
    const std::string bytes = Read(frames.empty() ? 5 : size_t{1} << 20);
    if (bytes.empty()) break;
    EXPECT_LE(bytes.size(), 32 * 13);
    frames += bytes;
    // An answer would get an error that ends all streams.
    iovec part = {&sent[0], 10};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    EXPECT_EQ(sendmsg(http2_[0].get(), &message, MSG_NOSIGNAL), 10);
  }
  std::set<std::string> resets;
  for (size_t at = 0; at < frames.size(); at += 13) resets.insert(frames.substr(at, 13));
  EXPECT_EQ(resets.size(), 400);
  for (uint32_t stream = 1; stream < 800; stream += 2) {
    EXPECT_EQ(resets.count(ResetStream(stream)), 1) << stream;
  }
  EXPECT_GE(waits_, 400 / 32);
}

TEST_F(PacedReadTest, AConnectionOverALimitHasItsStreamsResetInPieces) {
  ListenerOptions options;
  options.http2.max_concurrent_streams = 400;
  Start(options);
  const UniqueFd client = Connect(kHttp2Preface);
  Take();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 2000; stream += 2) sent += OpenStream(stream);
  SendAll(client, sent.substr(kHttp2Preface.size()));
  AwaitArrived(sent.size());
  // The reader gets the frames before the offence, whole.
  std::string got;
  while (got.size() < kHttp2Preface.size() + 528 * 11) {
    const std::string more = Read();
    ASSERT_FALSE(more.empty());
    got += more;
  }
  EXPECT_EQ(got, sent.substr(0, kHttp2Preface.size() + 528 * 11));
  EXPECT_TRUE(Closed(client));
  size_t resets = 0;
  while (true) {
    const std::string bytes = Read();
    if (bytes.empty()) break;
    EXPECT_LE(bytes.size(), 32 * 13);
    resets += bytes.size() / 13;
  }
  EXPECT_EQ(resets, 529);
}

// Nothing stays unread once there is no listener that wakes the reader.
TEST_F(PacedReadTest, AListenerThatEndsResumesReading) {
  Start({});
  const UniqueFd client = Connect(kHttp2Preface);
  Take();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 1800; stream += 2) {
    absl::StrAppend(&sent, OpenStream(stream), ResetStream(stream));
  }
  SendAll(client, sent.substr(kHttp2Preface.size()));
  AwaitArrived(sent.size());
  std::string got = Read();
  listener_.reset();
  while (got.size() < sent.size()) {
    const std::string more = Read();
    ASSERT_FALSE(more.empty());
    got += more;
  }
  EXPECT_EQ(got, sent);
}

// A number that another socket has by now is not guarded by the life of the one before.
TEST_F(ListenerTest, AnotherSocketOfTheSameNumberIsLeftAlone) {
  Start({});
  const UniqueFd client = Connect(kHttp2Preface);
  ASSERT_TRUE(Await(http2_, 1));
  const int number = http2_[0].get();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  ASSERT_EQ(dup2(pair[0], number), number);
  close(pair[0]);
  const UniqueFd other(pair[1]);
  ASSERT_EQ(send(other.get(), "no HTTP/2 at all", 16, 0), 16);
  char bytes[512];
  iovec part = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  EXPECT_EQ(recvmsg(number, &message, 0), 16);
}

}  // namespace
}  // namespace cohort
