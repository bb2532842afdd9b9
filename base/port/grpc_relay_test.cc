// The test is gRPC: it has the other end of the relay. One file, though long: all tests write
// frames by hand to a client's end and to gRPC's.
#include "base/port/grpc_relay.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/port/peer/grpc_peer.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr int kTimeoutMs = 20000;

// The name of the peer as gRPC writes it.
std::string PeerName(int fd) {
  sockaddr_un name = {};
  socklen_t size = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return "";
  if (name.sun_family != AF_UNIX || size < sizeof(sa_family_t) + 2) return "";
  return absl::StrCat("unix-abstract:",
                      absl::string_view(name.sun_path + 1, size - sizeof(sa_family_t) - 1));
}

// Sends all bytes, and waits for room.
void SendAll(const UniqueFd& fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    ASSERT_EQ(errno, EAGAIN);
    pollfd waited{fd.get(), POLLOUT, 0};
    ASSERT_EQ(poll(&waited, 1, kTimeoutMs), 1);
  }
}

// Returns the next bytes; empty: the connection has ended.
std::string ReadSome(const UniqueFd& fd) {
  pollfd waited{fd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&waited, 1, kTimeoutMs), 1) << "no bytes";
  std::string bytes(size_t{1} << 16, '\0');
  const ssize_t count = recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

// Returns the next `count` bytes, or fewer if the connection ends.
std::string ReadAll(const UniqueFd& fd, size_t count) {
  std::string bytes;
  while (bytes.size() < count) {
    const std::string more = ReadSome(fd);
    if (more.empty()) break;
    bytes += more;
  }
  return bytes;
}

std::string ReadToEnd(const UniqueFd& fd) { return ReadAll(fd, size_t{1} << 40); }

class GrpcRelayTest : public ::testing::Test {
 protected:
  void Start(const Http2Limits& limits = {}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    client_ = UniqueFd(pair[0]);
    ListenerPeer peer;
    peer.address = "10.0.0.7:41822";
    peer.incoming = incoming_;
    peer.access = access_;
    peer.next_stream_end = next_stream_end_;
    peer.count_streams = count_streams_;
    peer.has_request = has_request_;
    peer.on_offence = [this](const absl::Status& status) {
      MutexLock lock(&mutex_);
      offence_ = status;
    };
    auto relayed = RelayToGrpc(UniqueFd(pair[1]), limits, std::move(peer));
    ASSERT_TRUE(relayed.ok()) << relayed.status();
    grpc_ = *std::move(relayed);
  }
  static std::shared_ptr<PeerAccess> NoRights() {
    const std::string path = absl::StrCat(::testing::TempDir(), "/policy.json");
    std::ofstream(path) << R"({"rules": []})";
    return std::make_shared<PeerAccess>(AccessPolicy::Load(path).value(),
                                        std::vector<std::string>{"anonymous"});
  }
  absl::Status Offence() {
    MutexLock lock(&mutex_);
    const auto here = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !offence_.ok(); };
    mutex_.AwaitWithTimeout(absl::Condition(&here), kTimeout);
    return offence_;
  }
  // Until the incomplete requests have at least so many bytes, or none.
  void AwaitIncoming(int64_t bytes) {
    const Instant end = Clock::Steady().Now() + kTimeout;
    while (bytes == 0 ? incoming_->held() != 0 : incoming_->held() < bytes) {
      ASSERT_LT(Clock::Steady().Now(), end) << incoming_->held();
      std::this_thread::yield();
    }
  }

  std::shared_ptr<IncompleteRequestBytes> incoming_ =
      std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", int64_t{64} << 20);
  std::shared_ptr<PeerAccess> access_;
  std::shared_ptr<std::atomic<int64_t>> next_stream_end_;
  std::function<absl::Duration(size_t streams, Instant now)> count_streams_;
  std::shared_ptr<std::atomic<bool>> has_request_ = std::make_shared<std::atomic<bool>>(false);
  Mutex mutex_;
  absl::Status offence_;
  UniqueFd client_, grpc_;
};

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
// A frame of data, as large as one may be, of a message that goes on.
std::string Data(uint32_t stream, bool first) {
  std::string payload(16384, 'x');
  if (first) payload.replace(0, 5, std::string("\0\x7f\0\0\0", 5));
  return absl::StrCat(absl::string_view("\0\x40\0\0\0", 5), Number32(stream), payload);
}

TEST_F(GrpcRelayTest, ThePeerOfACallLeadsToItsClient) {
  access_ = NoRights();
  Start();
  const std::string peer = PeerName(grpc_.get());
  EXPECT_EQ(ClientOfGrpcPeer(peer).access, access_);
  EXPECT_EQ(ClientOfGrpcPeer(peer).address, "10.0.0.7:41822");
  for (const std::string& other :
       {std::string("unix-abstract:"), std::string("ipv4:127.0.0.1:80"), peer + "0", peer + "/1",
        peer.substr(0, peer.size() - 1), std::string("unix-abstract:cohort-1-1")}) {
    EXPECT_EQ(ClientOfGrpcPeer(other).access, nullptr) << other;
    EXPECT_EQ(ClientOfGrpcPeer(other).address, "") << other;
  }
  client_ = UniqueFd();
  EXPECT_EQ(ReadToEnd(grpc_), "");
  const Instant end = Clock::Steady().Now() + kTimeout;
  while (ClientOfGrpcPeer(peer).access != nullptr && Clock::Steady().Now() < end)
    std::this_thread::yield();
  EXPECT_EQ(ClientOfGrpcPeer(peer).access, nullptr);
}

// More than the buffers in between hold, in both directions, to readers that begin late.
TEST_F(GrpcRelayTest, BytesPassInBothDirections) {
  incoming_ = nullptr;
  Start();
  constexpr int kFrames = 500;  // 8 MiB
  std::string up(kHttp2Preface);
  up += OpenStream(1);
  for (int i = 0; i < kFrames; ++i) up += Data(1, i == 0);
  std::string down;
  for (int i = 0; i < kFrames; ++i) down += Data(1, i == 0);
  std::thread client([&] { SendAll(client_, up); });
  std::thread server([&] { SendAll(grpc_, down); });
  EXPECT_EQ(ReadAll(grpc_, up.size()), up);
  EXPECT_EQ(ReadAll(client_, down.size()), down);
  client.join();
  server.join();
  EXPECT_TRUE(has_request_->load());
}

TEST_F(GrpcRelayTest, TheLastBytesOfGrpcReachTheClient) {
  Start();
  std::string down;
  for (int i = 0; i < 100; ++i) down += Data(1, i == 0);
  std::thread server([&] {
    SendAll(grpc_, down);
    grpc_ = UniqueFd();
  });
  EXPECT_EQ(ReadToEnd(client_), down);
  server.join();
}

TEST_F(GrpcRelayTest, TheIncompleteRequestsOfAClientThatLeavesAreForgotten) {
  Start();
  SendAll(client_, absl::StrCat(kHttp2Preface, OpenStream(1), Data(1, true)));
  AwaitIncoming(32768);
  client_ = UniqueFd();
  AwaitIncoming(0);
  EXPECT_NE(ReadToEnd(grpc_), "");
}

TEST_F(GrpcRelayTest, TheIncompleteRequestsThatTheServerEndsAreForgotten) {
  Start();
  SendAll(client_, absl::StrCat(kHttp2Preface, OpenStream(1), Data(1, true)));
  AwaitIncoming(16384);
  SendAll(grpc_, ResetStream(1));
  AwaitIncoming(0);
}

TEST_F(GrpcRelayTest, IncompleteRequestsOverTheLimitEndTheConnection) {
  incoming_ = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", 20000);
  Start();
  SendAll(client_, absl::StrCat(kHttp2Preface, OpenStream(1), Data(1, true), Data(1, false)));
  EXPECT_NE(Offence().message().find("over max_incoming_bytes (20000)"), std::string::npos);
  ReadToEnd(grpc_);
  EXPECT_EQ(incoming_->held(), 0);
}

// gRPC needs memory for each of them, also before a service sees a call.
TEST_F(GrpcRelayTest, StreamsWithoutARequestCount) {
  incoming_ = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", 1 << 20);
  Start();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 200; stream += 2) sent += OpenStream(stream);
  SendAll(client_, sent);
  EXPECT_NE(Offence().message().find("over max_incoming_bytes (1048576)"), std::string::npos);
  ReadToEnd(grpc_);
  EXPECT_EQ(incoming_->held(), 0);
}

// Such as the streams of Health/Watch, which no service counts.
TEST_F(GrpcRelayTest, ManyStreamsWithWholeRequestsCount) {
  Start();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 200; stream += 2) {
    sent += OpenStream(stream);
    sent[sent.size() - 7] = 5;  // the flags: the headers are whole, and so is the request
  }
  SendAll(client_, sent);
  AwaitIncoming((100 - 32) * (16 << 10));
  EXPECT_EQ(incoming_->held(), (100 - 32) * (16 << 10));
  for (uint32_t stream = 1; stream < 200; stream += 2) SendAll(grpc_, ResetStream(stream));
  AwaitIncoming(0);
}

// The coordinator counts the calls of other clients, and refuses those of strangers.
TEST_F(GrpcRelayTest, TheWholeRequestsOfAStrangerCountUntilGrpcEndsThem) {
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 6; stream += 2) {
    sent += OpenStream(stream);  // then an empty message, which ends the client's side
    absl::StrAppend(&sent, absl::string_view("\0\0\5\0\1", 5), Number32(stream),
                    absl::string_view("\0\0\0\0\0", 5));
  }
  Start();
  SendAll(client_, sent);
  EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
  EXPECT_EQ(incoming_->held(), 0);
  client_ = UniqueFd();
  ReadToEnd(grpc_);
  access_ = NoRights();
  Start();
  SendAll(client_, sent);
  EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
  const int64_t connection = int64_t{48} << 10;
  EXPECT_EQ(incoming_->held(), connection + 3 * (16 << 10));
  const std::string trailers =
      absl::StrCat(absl::string_view("\0\0\1\1\5", 5), Number32(3), "\x88");
  int64_t left = 3;
  for (const std::string& end : {ResetStream(1), trailers, ResetStream(5)}) {
    SendAll(grpc_, end);
    EXPECT_EQ(ReadAll(client_, end.size()), end);
    EXPECT_EQ(incoming_->held(), connection + --left * (16 << 10));
  }
}

TEST_F(GrpcRelayTest, FramesOverALimitStayHidden) {
  Start();
  std::string sent(kHttp2Preface);
  for (int i = 0; i < 1000; ++i) sent += std::string("\0\0\0\4\0\0\0\0\0", 9);
  SendAll(client_, sent);
  EXPECT_LE(ReadToEnd(grpc_).size(), kHttp2Preface.size() + 100 * 9);
  EXPECT_NE(ReadToEnd(client_).find("max_settings_per_second (100)"), std::string::npos);
  EXPECT_EQ(Offence().code(), absl::StatusCode::kResourceExhausted);
}

// gRPC takes long for a reset, and keeps others waiting meanwhile.
TEST_F(GrpcRelayTest, ManyResetsReachGrpcAtTheirRate) {
  Start();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 1800; stream += 2) {
    absl::StrAppend(&sent, OpenStream(stream), ResetStream(stream));
  }
  const Instant begin = Clock::Steady().Now();
  SendAll(client_, sent);
  EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
  // 900 resets, of which some 280 pass at once and 4000 a second later.
  EXPECT_GT(Clock::Steady().Now() - begin, absl::Milliseconds(100));
}

TEST_F(GrpcRelayTest, AConnectionThatEndsHasItsStreamsResetInPieces) {
  Start();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 800; stream += 2) sent += OpenStream(stream);
  SendAll(client_, sent);
  EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
  const Instant begin = Clock::Steady().Now();
  client_ = UniqueFd();
  // Answers are for a client that has gone.
  SendAll(grpc_, std::string(100, 'x'));
  const std::string frames = ReadToEnd(grpc_);
  EXPECT_GE(Clock::Steady().Now() - begin, 400 / 32 * absl::Milliseconds(4));
  std::set<std::string> resets;
  for (size_t at = 0; at < frames.size(); at += 13) resets.insert(frames.substr(at, 13));
  EXPECT_EQ(resets.size(), 400);
  for (uint32_t stream = 1; stream < 800; stream += 2) {
    EXPECT_EQ(resets.count(ResetStream(stream)), 1) << stream;
  }
}

// gRPC would end all streams at once, and connections of others would wait for that.
TEST_F(GrpcRelayTest, AConnectionThatEndsWithinAFrameHasItsStreamsResetInPieces) {
  const size_t sizes[] = {3, 100, 16384};  // of the frame
  for (const size_t size : sizes) {
    SCOPED_TRACE(size);
    Start();
    std::string sent(kHttp2Preface);
    for (uint32_t stream = 1; stream < 800; stream += 2) sent += OpenStream(stream);
    SendAll(client_, sent + Data(1, true).substr(0, size));
    EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
    const Instant begin = Clock::Steady().Now();
    client_ = UniqueFd();
    EXPECT_EQ(ReadToEnd(grpc_).size(), 400 * 13);
    EXPECT_GE(Clock::Steady().Now() - begin, 400 / 32 * absl::Milliseconds(4));
  }
}

// Frames of a connection with many streams wait until they are whole.
TEST_F(GrpcRelayTest, AllBytesPassHoweverTheyAreCut) {
  const auto seed = static_cast<uint32_t>(absl::ToUnixNanos(absl::Now()));
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    Start();
    std::string sent(kHttp2Preface);
    for (uint32_t stream = 1; stream < 130; stream += 2) {
      sent += OpenStream(stream);
      if (random() % 4 == 0) sent += Data(stream, true);
      if (random() % 4 == 0) sent += ResetStream(stream);
    }
    std::thread client([&] {
      for (size_t at = 0; at < sent.size();) {
        const size_t most = random() % 2 == 0 ? 20 : 20000;
        const std::string part = sent.substr(at, 1 + random() % most);
        SendAll(client_, part);
        at += part.size();
      }
    });
    EXPECT_TRUE(ReadAll(grpc_, sent.size()) == sent);
    client.join();
    client_ = UniqueFd();
    ReadToEnd(grpc_);
  }
}

// A client announces frames of up to 16 MiB, and the relay does not keep so much of each
// connection.
TEST_F(GrpcRelayTest, LongFramesOfManyStreamsPassInParts) {
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 80; stream += 2) sent += OpenStream(stream);
  // HTTP/2 does not know its type, so that no message is charged.
  absl::StrAppend(&sent, absl::string_view("\xff\xff\xff\x77\0", 5), Number32(0),
                  std::string(size_t{1} << 20, 'x'));
  for (const bool has_role : {true, false}) {
    access_ = has_role ? nullptr : NoRights();
    next_stream_end_ = std::make_shared<std::atomic<int64_t>>(0);
    Start();
    std::thread client([&] { SendAll(client_, sent); });
    EXPECT_EQ(ReadAll(grpc_, sent.size()).size(), sent.size());
    client.join();
    const Instant begin = Clock::Steady().Now();
    client_ = UniqueFd();
    EXPECT_EQ(ReadToEnd(grpc_), "") << "resets within a frame";
    const absl::Duration least = has_role ? absl::ZeroDuration() : 40 * absl::Milliseconds(2);
    EXPECT_GE(Clock::Steady().Now() - begin, least);
  }
}

// A tenant that begins many streams waits, and the others do not.
TEST_F(GrpcRelayTest, StreamsReachGrpcAtTheRateOfTheTenant) {
  std::atomic<size_t> counted{0};
  count_streams_ = [&](size_t streams, Instant) {
    counted += streams;
    return absl::Milliseconds(static_cast<int64_t>(streams) / 4);
  };
  Start();
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 4000; stream += 2) sent += OpenStream(stream);
  const Instant begin = Clock::Steady().Now();
  SendAll(client_, sent);
  EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
  const Instant end = Clock::Steady().Now() + kTimeout;
  while (counted.load() < 2000 && Clock::Steady().Now() < end) std::this_thread::yield();
  EXPECT_EQ(counted.load(), 2000);
  // All but the last piece of 4 KiB, which has some 370 streams.
  EXPECT_GE(Clock::Steady().Now() - begin, absl::Milliseconds(1600 / 4));
  client_ = UniqueFd();
  ReadToEnd(grpc_);
}

// Its connections have one pace, so that a new connection is no way to open more.
TEST_F(GrpcRelayTest, TheStreamsOfAnAddressWithoutRightsEndOneAfterTheOther) {
  access_ = NoRights();
  next_stream_end_ = std::make_shared<std::atomic<int64_t>>(0);
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 80; stream += 2) sent += OpenStream(stream);
  const Instant begin = Clock::Steady().Now();
  std::vector<UniqueFd> servers;
  for (const bool cut_off : {false, true, true, false}) {
    Start();
    SendAll(client_, sent + (cut_off ? Data(1, true).substr(0, 100) : ""));
    EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
    servers.push_back(std::move(grpc_));
  }
  client_ = UniqueFd();
  for (const UniqueFd& server : servers) ReadToEnd(server);
  EXPECT_GE(Clock::Steady().Now() - begin, 4 * 32 * absl::Milliseconds(2));
  AwaitIncoming(0);
}

TEST_F(GrpcRelayTest, AConnectionOverALimitHasItsStreamsResetInPieces) {
  Http2Limits limits;
  limits.max_concurrent_streams = 400;
  Start(limits);
  std::string sent(kHttp2Preface);
  for (uint32_t stream = 1; stream < 2000; stream += 2) sent += OpenStream(stream);
  SendAll(client_, sent);
  // gRPC gets the frames before the offence, whole.
  const size_t before = kHttp2Preface.size() + 528 * 11;
  const std::string got = ReadToEnd(grpc_);
  EXPECT_EQ(got.substr(0, before), sent.substr(0, before));
  EXPECT_EQ(got.size() - before, 529 * 13);
}

TEST_F(GrpcRelayTest, AClientThatGoesWhileItIsPausedEndsTheConnection) {
  Http2Limits limits;
  limits.max_resets_per_second = 1;
  limits.max_resets_at_once = 1;
  Start(limits);
  std::string sent(kHttp2Preface);
  absl::StrAppend(&sent, OpenStream(1), ResetStream(1));
  SendAll(client_, sent);
  EXPECT_EQ(ReadAll(grpc_, sent.size()), sent);
  client_ = UniqueFd();
  EXPECT_EQ(ReadToEnd(grpc_), "");
}

}  // namespace
}  // namespace cohort
