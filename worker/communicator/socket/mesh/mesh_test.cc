// One file, though long: all tests build meshes in the same way.
#include "worker/communicator/socket/mesh/mesh.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/handshake.h"

namespace {

// A name with three addresses: one refuses, one does not answer, and the last one is that of ranks.
constexpr char kSeveral[] = "several.test";

}  // namespace

// Replaces the C library's in this test alone.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node == nullptr || strcmp(node, kSeveral) != 0) return real(node, service, hints, result);
  for (const char* const address : {"127.0.0.2", "127.0.0.3", "127.0.0.1"}) {
    if (const int error = real(address, service, hints, result); error != 0) return error;
    while (*result != nullptr) result = &(*result)->ai_next;
  }
  return 0;
}

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Id128 kSecret = {0x1122334455667788, 0x99AABBCCDDEEFF00};

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }
Instant Soon() { return In(absl::Seconds(60)); }

class MeshTest : public ::testing::Test {
 protected:
  void Listen(int size, const std::string& host = "127.0.0.1") {
    for (int rank = 0; rank < size; ++rank) {
      absl::StatusOr<Listener> listener = Listener::Open(host, 0);
      ASSERT_TRUE(listener.ok()) << listener.status();
      addresses_.push_back(listener->address());
      listeners_.push_back(*std::move(listener));
    }
  }
  MeshOptions Options(int rank, int streams = 2) const {
    MeshOptions options;
    options.rank = rank;
    options.addresses = addresses_;
    options.secret = kSecret;
    options.streams = streams;
    return options;
  }
  absl::StatusOr<Mesh> Connect(const MeshOptions& options, Instant deadline) const {
    return ConnectMesh(listeners_[static_cast<size_t>(options.rank)], options, deadline);
  }
  // Ranks 0..size-1, each on a thread, while `meanwhile` runs on this one.
  std::vector<absl::StatusOr<Mesh>> ConnectAll(
      const std::vector<MeshOptions>& options, const std::function<void()>& meanwhile = [] {}) {
    std::vector<absl::StatusOr<Mesh>> meshes(options.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < options.size(); ++i) {
      threads.emplace_back([&, i] { meshes[i] = Connect(options[i], Soon()); });
    }
    meanwhile();
    for (std::thread& thread : threads) thread.join();
    return meshes;
  }
  UniqueFd Knock(int rank) const {
    const absl::StatusOr<std::vector<SocketAddress>> addresses =
        ResolveAddresses(addresses_[static_cast<size_t>(rank)]);
    const SocketAddress& address = addresses->front();
    UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), address.get(), address.size), 0) << strerror(errno);
    const timeval timeout = {20, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    return fd;
  }

  std::vector<std::string> addresses_;
  std::vector<Listener> listeners_;
};

void Send(int fd, const void* bytes, size_t count) {
  EXPECT_EQ(send(fd, bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
}

// Returns the answer, until the connection is closed. Fails if it stays open.
std::string ReadAll(const UniqueFd& fd) {
  std::string all;
  char bytes[256];
  while (true) {
    const ssize_t got = recv(fd.get(), bytes, sizeof(bytes), 0);
    EXPECT_FALSE(got < 0 && errno == EAGAIN) << "the connection is still open";
    if (got <= 0) return all;
    all.append(bytes, static_cast<size_t>(got));
  }
}

// The answer to the hello of a rank.
Welcome WelcomeTo(const UniqueFd& fd, const Hello& hello) {
  Send(fd.get(), &hello, sizeof(hello));
  Welcome welcome;
  EXPECT_EQ(recv(fd.get(), &welcome, sizeof(welcome), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(welcome)));
  EXPECT_EQ(welcome.answer, Answer::kWelcome);
  return welcome;
}

Answer AnswerTo(const UniqueFd& fd, const Hello& hello) {
  Send(fd.get(), &hello, sizeof(hello));
  const std::string answer = ReadAll(fd);
  EXPECT_EQ(answer.size(), sizeof(Welcome));
  Welcome welcome;
  memcpy(&welcome, answer.data(), std::min(answer.size(), sizeof(welcome)));
  EXPECT_EQ(welcome.proof, Proof{}) << "an unidentified connection got a proof";
  return welcome.answer;
}

int OptionOf(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &size), 0) << strerror(errno);
  return value;
}

// Says `out` on one end of each connection, and hears it on the other.
void ExpectConnected(const std::vector<absl::StatusOr<Mesh>>& meshes) {
  for (size_t from = 0; from < meshes.size(); ++from) {
    ASSERT_TRUE(meshes[from].ok()) << meshes[from].status();
    for (size_t to = 0; to < meshes.size(); ++to) {
      if (to == from) continue;
      for (size_t stream = 0; stream < meshes[from]->streams[to].size(); ++stream) {
        const std::string out = absl::StrCat(from, " to ", to, " by ", stream);
        Send(meshes[from]->streams[to][stream].fd(), out.data(), out.size());
        std::string in(out.size(), '\0');
        pollfd readable = {meshes[to]->streams[from][stream].fd(), POLLIN, 0};
        ASSERT_EQ(poll(&readable, 1, 60000), 1);
        ASSERT_EQ(recv(readable.fd, &in[0], in.size(), 0), static_cast<ssize_t>(in.size()));
        EXPECT_EQ(in, out);
      }
    }
  }
}

TEST_F(MeshTest, ConnectsAllRanksByAllStreams) {
  Listen(5);
  std::vector<MeshOptions> options;
  for (int rank = 0; rank < 5; ++rank) options.push_back(Options(rank, 3));
  ExpectConnected(ConnectAll(options));
}

// Both ends probe an idle connection, and give it up after the timeout of links. Only frames, which
// a rank reads at once, have the timeout while they are on the way.
TEST_F(MeshTest, ConnectionsHaveTheTimeoutOfLinks) {
  Listen(2);
  struct Case {
    absl::Duration timeout;
    int probes;
    int unsent_ms;
  };
  for (const Case& one : {Case{absl::Seconds(15), 5, 15000}, Case{absl::Seconds(9), 3, 9000},
                          Case{absl::Milliseconds(200), 1, 1000}}) {
    SCOPED_TRACE(absl::FormatDuration(one.timeout));
    std::vector<MeshOptions> options = {Options(0), Options(1)};
    for (MeshOptions& option : options) option.link_timeout = one.timeout;
    const std::vector<absl::StatusOr<Mesh>> meshes = ConnectAll(options);
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(meshes[rank].ok()) << meshes[rank].status();
      for (size_t stream = 0; stream < 2; ++stream) {
        SCOPED_TRACE(absl::StrCat("rank ", rank, ", stream ", stream));
        const int fd = meshes[rank]->streams[1 - rank][stream].fd();
        EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_NODELAY), 1);
        EXPECT_EQ(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE), 3);
        EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL), 3);
        EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT), one.probes);
        EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), stream == 0 ? one.unsent_ms : 0);
      }
    }
  }
}

TEST_F(MeshTest, ConnectsOverIpv6) {
  if (!Listener::Open("::1", 0).ok()) GTEST_SKIP() << "no IPv6 here";
  Listen(2, "::1");
  EXPECT_THAT(addresses_[0], StartsWith("[::1]:"));
  ExpectConnected(ConnectAll({Options(0), Options(1)}));
}

TEST_F(MeshTest, RejectsUnidentifiedConnectionsWithoutHarmToRanks) {
  Listen(2);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const Membership rank_1 = {1, 2, 2, kSecret};
  const Hello good = MakeHello(rank_1, 0, 0);
  // Rank 0 waits for rank 1 while others knock.
  absl::StatusOr<Mesh> first;
  std::thread waiting([&] { first = Connect(Options(0), Soon()); });
  const auto answer_to = [&](const std::function<void(Hello&)>& change) {
    Hello hello = good;
    change(hello);
    return AnswerTo(Knock(0), hello);
  };
  EXPECT_EQ(answer_to([](Hello& hello) { hello.version = 1; }), Answer::kOtherVersion);
  EXPECT_EQ(answer_to([](Hello& hello) { hello.group ^= 1; }), Answer::kOtherGroup);
  EXPECT_EQ(answer_to([](Hello& hello) { hello.from = 0; }), Answer::kOtherShape);
  EXPECT_EQ(answer_to([](Hello& hello) { hello.from = 7; }), Answer::kOtherShape);
  EXPECT_EQ(answer_to([](Hello& hello) { hello.to = 1; }), Answer::kOtherShape);
  EXPECT_EQ(answer_to([](Hello& hello) { hello.stream = 2; }), Answer::kOtherShape);
  EXPECT_EQ(answer_to([](Hello& hello) { hello.size = 3; }), Answer::kOtherShape);
  for (int i = 0; i < 50; ++i) {
    const UniqueFd unidentified = Knock(0);
    std::string garbage(random() % 100, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    Send(unidentified.get(), garbage.data(), garbage.size());
    if (garbage.size() >= sizeof(uint64_t)) {
      EXPECT_LE(ReadAll(unidentified).size(), sizeof(Welcome));
    }
  }
  // More silent connections than are kept at once.
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(Knock(0));
  const auto prove = [](const UniqueFd& fd, const Proof& proof) {
    Send(fd.get(), &proof, sizeof(proof));
  };
  // An eavesdropper has a hello and a proof of another connection.
  const UniqueFd overheard = Knock(0);
  const Welcome before = WelcomeTo(overheard, good);
  const Proof old_proof = ProofOf(rank_1, good, before);
  const UniqueFd replayed = Knock(0);
  EXPECT_NE(WelcomeTo(replayed, good).challenge, before.challenge);
  prove(replayed, old_proof);
  EXPECT_EQ(ReadAll(replayed), "");
  // The proof of the rank that accepts does not count as that of the other end.
  const UniqueFd reflecting = Knock(0);
  prove(reflecting, WelcomeTo(reflecting, good).proof);
  EXPECT_EQ(ReadAll(reflecting), "");
  // One of another version, which sends fewer bytes.
  const UniqueFd older = Knock(0);
  Hello short_hello = good;
  short_hello.version = kHandshakeVersion - 1;
  Send(older.get(), &short_hello, 40);
  Welcome refusal;
  ASSERT_EQ(recv(older.get(), &refusal, sizeof(refusal), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(refusal)));
  EXPECT_EQ(refusal.answer, Answer::kOtherVersion);
  // The proof may come in pieces. Connections without it take no rank's place, and a second one
  // with it is refused.
  const UniqueFd early = Knock(0);
  const Proof proof = ProofOf(rank_1, good, WelcomeTo(early, good));
  Send(early.get(), proof.data(), 5);
  Send(early.get(), proof.data() + 5, proof.size() - 5);
  // Rank 0 may not have read the proof yet.
  Answer answer = Answer::kWelcome;
  while (answer == Answer::kWelcome) {
    const UniqueFd again = Knock(0);
    Send(again.get(), &good, sizeof(good));
    ASSERT_EQ(recv(again.get(), &refusal, sizeof(refusal), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(refusal)));
    answer = refusal.answer;
  }
  EXPECT_EQ(answer, Answer::kDuplicate);
  const Hello other_stream = MakeHello(rank_1, 0, 1);
  const UniqueFd second = Knock(0);
  prove(second, ProofOf(rank_1, other_stream, WelcomeTo(second, other_stream)));
  waiting.join();
  EXPECT_TRUE(first.ok()) << first.status();
}

// Rank 1's hello to rank 0, as an eavesdropper has it, on very many connections; and rank 1 late.
TEST_F(MeshTest, OverheardHellosKeepNoRankOut) {
  Listen(2);
  const Hello heard = MakeHello({1, 2, 2, kSecret}, 0, 0);
  std::vector<UniqueFd> strangers;
  absl::StatusOr<Mesh> first;
  std::thread waiting([&] { first = Connect(Options(0), Soon()); });
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(Knock(0));
    Send(strangers.back().get(), &heard, sizeof(heard));
  }
  const absl::StatusOr<Mesh> second = Connect(Options(1), Soon());
  EXPECT_TRUE(second.ok()) << second.status();
  waiting.join();
  EXPECT_TRUE(first.ok()) << first.status();
}

// All of it lies there when the rank begins to accept.
TEST_F(MeshTest, ABurstOfOneOverheardHelloHoldsNoMoreConnectionsWithAPartOfAProof) {
  Listen(2);
  constexpr size_t kMost = 16;
  const Hello heard = MakeHello({1, 2, 2, kSecret}, 0, 0);
  std::vector<UniqueFd> alike;
  for (size_t i = 0; i < 3 * kMost; ++i) {
    alike.push_back(Knock(0));
    Send(alike.back().get(), &heard, sizeof(heard));
    Send(alike.back().get(), "x", 1);
  }
  absl::StatusOr<Mesh> mesh;
  std::thread waiting([&] { mesh = Connect(Options(0), Soon()); });
  size_t open = alike.size();
  const Instant end = Soon();
  while (open > kMost + 1 && Clock::Steady().Now() < end) {
    open = 0;
    for (const UniqueFd& fd : alike) {
      pollfd ended = {fd.get(), POLLRDHUP, 0};
      if (poll(&ended, 1, 1) == 0) ++open;
    }
  }
  EXPECT_LE(open, kMost + 1);
  const absl::StatusOr<Mesh> of_rank_1 = Connect(Options(1), Soon());
  waiting.join();
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_TRUE(of_rank_1.ok()) << of_rank_1.status();
}

// They would take the descriptors of the process. The rank's own connection is among the last ones
// when its proof comes.
TEST_F(MeshTest, TheOldestConnectionsWithOneOverheardHelloAreClosed) {
  Listen(2);
  constexpr size_t kMost = 16;
  const Membership rank_1 = {1, 2, 2, kSecret};
  const Hello heard = MakeHello(rank_1, 0, 0);
  const Hello other_stream = MakeHello(rank_1, 0, 1);
  absl::StatusOr<Mesh> first;
  std::thread waiting([&] { first = Connect(Options(0), Soon()); });
  const UniqueFd other = Knock(0);
  const Welcome other_welcome = WelcomeTo(other, other_stream);
  std::vector<UniqueFd> alike;
  Welcome last;
  for (size_t i = 0; i < kMost + 3; ++i) {
    alike.push_back(Knock(0));
    last = WelcomeTo(alike.back(), heard);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ReadAll(alike[i]), "") << i;
  for (size_t i = 3; i < alike.size(); ++i) {
    pollfd waited = {alike[i].get(), POLLIN, 0};
    EXPECT_EQ(poll(&waited, 1, 0), 0) << i;
  }
  const Proof proof = ProofOf(rank_1, heard, last);
  Send(alike.back().get(), &proof, sizeof(proof));
  const Proof other_proof = ProofOf(rank_1, other_stream, other_welcome);
  Send(other.get(), &other_proof, sizeof(other_proof));
  waiting.join();
  EXPECT_TRUE(first.ok()) << first.status();
}

// Strangers connect and go as fast as they can, while rank 1 is late.
TEST_F(MeshTest, AFloodOfConnectionsKeepsNoRankOut) {
  Listen(2);
  std::atomic<bool> over{false};
  std::vector<std::thread> strangers;
  for (int i = 0; i < 2; ++i) {
    strangers.emplace_back([&] {
      while (!over) {
        std::vector<UniqueFd> batch;
        for (int n = 0; n < 100; ++n) batch.push_back(Knock(0));
      }
    });
  }
  absl::StatusOr<Mesh> first;
  std::thread waiting([&] { first = Connect(Options(0), Soon()); });
  for (int i = 0; i < 1000; ++i) Knock(0);
  const absl::StatusOr<Mesh> second = Connect(Options(1), Soon());
  EXPECT_TRUE(second.ok()) << second.status();
  waiting.join();
  EXPECT_TRUE(first.ok()) << first.status();
  over = true;
  for (std::thread& stranger : strangers) stranger.join();
}

// A rank whose connection was dropped before it was let in connects again.
TEST_F(MeshTest, ARankThatIsDroppedTriesAgain) {
  Listen(2);
  absl::StatusOr<Mesh> second;
  std::thread connecting([&] { second = Connect(Options(1), Soon()); });
  for (int i = 0; i < 5; ++i) {
    pollfd knocked = {listeners_[0].fd(), POLLIN, 0};
    ASSERT_EQ(poll(&knocked, 1, 60000), 1);
    const UniqueFd dropped(accept(listeners_[0].fd(), nullptr, nullptr));
    const linger reset = {1, 0};
    if (i % 2 == 0) setsockopt(dropped.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  const absl::StatusOr<Mesh> first = Connect(Options(0), Soon());
  EXPECT_TRUE(first.ok()) << first.status();
  connecting.join();
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST_F(MeshTest, AnAbsentRankIsNamedWithItsAddress) {
  Listen(2);
  listeners_[0] = Listener();
  const absl::Status status = Connect(Options(1), Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(), absl::StrCat("rank 0 at ", addresses_[0], ": Connection refused"));
}

// A name of a host may have addresses at which the rank does not listen, or that do not answer.
TEST_F(MeshTest, AllAddressesOfANameAreTried) {
  Listen(2);
  const int port = listeners_[0].port();
  // Its queue is full, so the kernel drops each further attempt to connect.
  sockaddr_in silent = {};
  silent.sin_family = AF_INET;
  silent.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.3", &silent.sin_addr);
  const auto* const address = reinterpret_cast<const sockaddr*>(&silent);
  const UniqueFd full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(full.get(), address, sizeof(silent)), 0) << strerror(errno);
  ASSERT_EQ(listen(full.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    connect(waiting.back().get(), address, sizeof(silent));
  }
  addresses_[0] = absl::StrCat(kSeveral, ":", port);
  for (const absl::StatusOr<Mesh>& mesh : ConnectAll({Options(0), Options(1)})) {
    EXPECT_TRUE(mesh.ok()) << mesh.status();
  }
}

TEST_F(MeshTest, AnotherRankMayEndTheWait) {
  Listen(2);
  MeshOptions options = Options(0);
  const UniqueFd event(eventfd(1, EFD_CLOEXEC));
  options.interrupt_fd = event.get();
  EXPECT_EQ(Connect(options, Soon()).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(MeshTest, TheRangeOfPortsIsKept) {
  Listen(1);
  const int taken = listeners_[0].port();
  const std::string range = absl::StrCat(taken, "-", taken);
  setenv("COHORT_PORT_RANGE", range.c_str(), 1);
  const absl::Status full = Listener::Open("127.0.0.1", 0).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(full.message(), absl::StrCat("cannot listen on 127.0.0.1: no port of COHORT_PORT_RANGE=",
                                         range, " is free"));
  listeners_.clear();
  const absl::StatusOr<Listener> free = Listener::Open("127.0.0.1", 0);
  unsetenv("COHORT_PORT_RANGE");
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(free->port(), taken);
}

// The ranks of a crossing of hosts have other numbers in the group, and people know those.
TEST_F(MeshTest, ARankThatDoesNotConnectHasItsNameInTheGroup) {
  Listen(2);
  MeshOptions options = Options(0);
  options.names = {3, 7};
  const absl::Status status = Connect(options, In(absl::Milliseconds(50))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("rank 7 did not connect"));
}

TEST_F(MeshTest, ARankThatDoesNotComeIsNamed) {
  Listen(4);
  const absl::Status above = Connect(Options(0), In(absl::Milliseconds(50))).status();
  EXPECT_EQ(above.code(), absl::StatusCode::kDeadlineExceeded) << above;
  EXPECT_THAT(std::string(above.message()), StartsWith("rank 1-3 did not connect within "));
  // Rank 0 listens, and does no more.
  const absl::Status below = Connect(Options(3), In(absl::Milliseconds(50))).status();
  EXPECT_EQ(below.code(), absl::StatusCode::kDeadlineExceeded) << below;
  EXPECT_THAT(std::string(below.message()),
              StartsWith(absl::StrCat("rank 0 at ", addresses_[0], ": did not answer within ")));
}

TEST_F(MeshTest, ARankOfAnotherGenerationIsRejected) {
  Listen(2);
  MeshOptions other = Options(1);
  other.secret.high ^= 1;
  absl::Status refused;
  std::thread waiting([&] { refused = Connect(Options(0), In(absl::Seconds(1))).status(); });
  const absl::Status status = Connect(other, Soon()).status();
  waiting.join();
  EXPECT_EQ(status.message(),
            absl::StrCat("rank 0 at ", addresses_[0], ": another group or generation"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 1 did not connect"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the last: another group or generation"));
}

// An impostor does not know the secret.
TEST_F(MeshTest, AnAnsweringRankMustBelongToTheGroup) {
  Listen(2);
  absl::Status status;
  std::thread connecting([&] { status = Connect(Options(1), Soon()).status(); });
  pollfd knocked = {listeners_[0].fd(), POLLIN, 0};
  ASSERT_EQ(poll(&knocked, 1, 60000), 1);
  const UniqueFd impostor(accept(listeners_[0].fd(), nullptr, nullptr));
  Hello hello;
  ASSERT_EQ(recv(impostor.get(), &hello, sizeof(hello), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(hello)));
  Welcome welcome = MakeWelcome({0, 2, 2, {kSecret.high, 1}}, Answer::kWelcome, hello);
  Send(impostor.get(), &welcome, sizeof(welcome));
  connecting.join();
  EXPECT_THAT(std::string(status.message()), HasSubstr("another group or generation"));
}

// While it lives, the process cannot open more descriptors.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);
    close(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    value_ = next;
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  int value() const { return value_; }

 private:
  rlimit before_ = {};
  int value_ = 0;
};

TEST_F(MeshTest, WithoutADescriptorForARankItFailsAtOnceAndNamesTheLimit) {
  Listen(2);
  const UniqueFd waiting = Knock(0);
  const NoMoreDescriptors none;
  const std::string limit =
      absl::StrCat("the limit of open files (RLIMIT_NOFILE) is ", none.value());
  const absl::Status accepting = Connect(Options(0), In(absl::Seconds(5))).status();
  EXPECT_EQ(accepting.code(), absl::StatusCode::kResourceExhausted) << accepting;
  EXPECT_THAT(std::string(accepting.message()), StartsWith("accepting the connections of ranks"));
  EXPECT_THAT(std::string(accepting.message()), HasSubstr(limit));
  const absl::Status connecting = Connect(Options(1), In(absl::Seconds(5))).status();
  EXPECT_EQ(connecting.code(), absl::StatusCode::kResourceExhausted) << connecting;
  EXPECT_THAT(std::string(connecting.message()), StartsWith("connecting to rank 0"));
  EXPECT_THAT(std::string(connecting.message()), HasSubstr(limit));
}

TEST_F(MeshTest, AnInvalidAddressIsNamed) {
  Listen(2);
  for (const char* address : {"", "localhost", "1.2.3.4:0", "1.2.3.4:99999", ":80", "[::1]"}) {
    addresses_[0] = address;
    const absl::Status status = Connect(Options(1), Soon()).status();
    EXPECT_THAT(std::string(status.message()), StartsWith(absl::StrCat("rank 0 at ", address)));
  }
}

}  // namespace
}  // namespace cohort::worker
