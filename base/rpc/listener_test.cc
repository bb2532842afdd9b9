#include "base/rpc/listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/lane/frame.h"
#include "base/mutex.h"
#include "base/rpc/listen_address.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

class ListenerTest : public ::testing::Test {
 protected:
  void Start(ListenerOptions options) {
    auto address = ParseListenAddress("127.0.0.1:0");
    ASSERT_TRUE(address.ok());
    auto sockets = ListenSocket::Open(*address);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    port_ = sockets->front().port();
    ListenerSinks sinks;
    sinks.lane = [this](int fd, LanePeer) { Take(fd, lanes_); };
    sinks.grpc = [this](int fd, int) { Take(fd, http2_); };
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

  // Whether the listener's side closes it in time. Drops what it sends before.
  static bool Closed(const UniqueFd& fd, absl::Duration patience = kPatience) {
    while (true) {
      pollfd waited{fd.get(), POLLIN | POLLRDHUP, 0};
      const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(patience));
      if (poll(&waited, 1, milliseconds) <= 0) return false;
      char bytes[512];
      const ssize_t count = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    }
  }

  // Waits until `count` were handed over.
  bool Await(const std::vector<UniqueFd>& taken, size_t count) {
    MutexLock lock(&mutex_);
    const auto enough = [&] { return taken.size() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
  }

  int port_ = 0;
  Mutex mutex_;
  std::vector<UniqueFd> lanes_;
  std::vector<UniqueFd> http2_;
  std::unique_ptr<Listener> listener_;

 private:
  void Take(int fd, std::vector<UniqueFd>& taken) {
    MutexLock lock(&mutex_);
    taken.emplace_back(fd);
  }
};

TEST_F(ListenerTest, TellsByThePrefaceAndClosesTheRest) {
  Start({});
  const UniqueFd lane = Connect(lane::kPreface);
  const UniqueFd http2 = Connect(kHttp2Preface);
  const UniqueFd other = Connect("GET / HTTP/1.1\r\n");
  const UniqueFd almost = Connect("PRI * HTTP/2.1\r\n");
  EXPECT_TRUE(Await(lanes_, 1));
  EXPECT_TRUE(Await(http2_, 1));
  // A lane's client learns from HTTP/2's first frame that there is no lane.
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

TEST_F(ListenerTest, AtTheLimitTheOldestWithoutARequestMakesRoom) {
  ListenerOptions options;
  options.max_connections = 6;
  options.max_connections_per_peer = 6;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const UniqueFd lane = Connect(lane::kPreface);
  ASSERT_TRUE(Await(lanes_, 1));
  ASSERT_EQ(send(lane.get(), "a call", 6, MSG_NOSIGNAL), 6);
  char bytes[64];
  // The listener looks at what has arrived, so it must have.
  while (recv(lanes_[0].get(), bytes, sizeof(bytes), MSG_PEEK) < 14) sched_yield();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(Connect());
  std::vector<UniqueFd> more;
  for (int i = 0; i < 5; ++i) more.push_back(Connect(kHttp2Preface));
  EXPECT_TRUE(Await(http2_, 5));
  for (const UniqueFd& fd : silent) EXPECT_TRUE(Closed(fd));
  // Those who spoke HTTP/2's preface and no more are next, the lane's stays.
  const UniqueFd last = Connect(kHttp2Preface);
  EXPECT_TRUE(Await(http2_, 6));
  EXPECT_TRUE(Closed(more[0]));
  EXPECT_FALSE(Closed(lane, absl::ZeroDuration()));
}

TEST_F(ListenerTest, ConnectionsWithRequestsAreKeptAndTheNewcomerIsRefused) {
  ListenerOptions options;
  options.max_connections = 6;
  options.max_connections_per_peer = 2;
  Start(options);
  std::vector<UniqueFd> kept;
  for (int i = 0; i < 2; ++i) {
    kept.push_back(Connect(lane::kPreface));
    ASSERT_TRUE(Await(lanes_, i + 1));
    ASSERT_EQ(send(kept[i].get(), "a call", 6, MSG_NOSIGNAL), 6);
    char bytes[64];
    while (recv(lanes_[i].get(), bytes, sizeof(bytes), MSG_PEEK) < 14) sched_yield();
  }
  EXPECT_TRUE(Closed(Connect()));
  // Once one has gone there is room.
  {
    MutexLock lock(&mutex_);
    lanes_.erase(lanes_.begin());
  }
  const UniqueFd again = Connect(lane::kPreface);
  EXPECT_TRUE(Await(lanes_, 2));
}

TEST_F(ListenerTest, WhatGrpcReadsIsCountedAndTheConnectionIsClosed) {
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
  const Instant deadline = Clock::Steady().Now() + kPatience;
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
  // The client hears why.
  pollfd waited{client.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1);
  std::string heard(4096, '\0');
  heard.resize(static_cast<size_t>(std::max<ssize_t>(
      recv(client.get(), heard.data(), heard.size(), MSG_DONTWAIT), 0)));
  EXPECT_NE(heard.find("max_settings_per_second (100)"), std::string::npos);
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
