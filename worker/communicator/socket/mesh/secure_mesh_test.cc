#include "worker/communicator/socket/mesh/secure_mesh.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/link_proof.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/mesh/rank_socket.h"

namespace cohort::worker {
namespace {

using ::cohort::testing::CertificateAuthority;
using ::cohort::testing::CertificateNames;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Id128 kSecret = {0x1122334455667788, 0x99AABBCCDDEEFF00};

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }
Instant Soon() { return In(absl::Seconds(60)); }

std::shared_ptr<SSL_CTX> ContextOf(const TlsFiles& files) {
  auto loaded = TlsContext::Load(files, TlsSide::kPeer);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return (*loaded)->Current(absl::UnixEpoch());
}

void InParallel(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

class SecureMeshTest : public ::testing::Test {
 protected:
  // Connects `size` ranks, which then have sockets without TLS.
  void Connect(int size, int streams = 2) {
    std::vector<Listener> listeners;
    addresses_.clear();
    for (int rank = 0; rank < size; ++rank) {
      listeners.push_back(*Listener::Open("127.0.0.1", 0));
      addresses_.push_back(listeners.back().address());
    }
    meshes_ = std::vector<Mesh>(static_cast<size_t>(size));
    InParallel(size, [&](int rank) {
      MeshOptions options;
      options.rank = rank;
      options.addresses = addresses_;
      options.secret = SecretBeforeTls(kSecret);
      options.streams = streams;
      const auto i = static_cast<size_t>(rank);
      meshes_[i] = *ConnectMesh(listeners[i], options, Soon());
    });
  }
  absl::Status Secure(int rank, const std::shared_ptr<SSL_CTX>& context, Instant deadline = Soon(),
                      const Id128& secret = kSecret) {
    return SecureMesh(meshes_[static_cast<size_t>(rank)], {rank, secret, context, {}, addresses_},
                      deadline);
  }
  // The results of ranks that have these certificates.
  std::vector<absl::Status> SecureAll(const std::vector<TlsFiles>& files) {
    std::vector<absl::Status> results(files.size());
    InParallel(static_cast<int>(files.size()), [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      results[i] = Secure(rank, ContextOf(files[i]));
      if (!results[i].ok()) meshes_[i] = Mesh();
    });
    return results;
  }
  void ExpectFailures(const std::vector<absl::Status>& results, absl::StatusCode code,
                      const std::string& at_0, const std::string& at_1) {
    EXPECT_EQ(results[0].code(), code) << results[0];
    EXPECT_EQ(results[1].code(), code) << results[1];
    const auto place = [this](size_t rank) {
      return absl::StrCat("rank ", rank, " at ", addresses_[rank], ": TLS handshake: ");
    };
    EXPECT_THAT(std::string(results[0].message()), AllOf(StartsWith(place(1)), HasSubstr(at_0)));
    EXPECT_THAT(std::string(results[1].message()), AllOf(StartsWith(place(0)), HasSubstr(at_1)));
  }
  const RankSocket& Socket(int rank, int peer, int stream = 0) const {
    return meshes_[static_cast<size_t>(rank)]
        .streams[static_cast<size_t>(peer)][static_cast<size_t>(stream)];
  }

  const CertificateAuthority ca_{::testing::TempDir()};
  std::vector<std::string> addresses_;
  std::vector<Mesh> meshes_;
};

TEST_F(SecureMeshTest, BytesOfAllStreamsArriveEncrypted) {
  constexpr int kRanks = 4;
  constexpr int kStreams = 3;
  Connect(kRanks, kStreams);
  std::vector<TlsFiles> files;
  for (int rank = 0; rank < kRanks; ++rank) {
    files.push_back(ca_.Sign(absl::StrCat("rank-", rank), {absl::StrCat("rank-", rank), ""}));
  }
  for (const absl::Status& result : SecureAll(files)) ASSERT_TRUE(result.ok()) << result;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      for (int stream = 0; stream < kStreams && to != from; ++stream) {
        const std::string out = absl::StrCat(from, " to ", to, " by ", stream);
        ASSERT_EQ(Socket(from, to, stream).stream().Send(out), static_cast<ssize_t>(out.size()));
        const RankSocket& socket = Socket(to, from, stream);
        pollfd readable = {socket.fd(), POLLIN, 0};
        ASSERT_EQ(poll(&readable, 1, 60000), 1);
        std::string raw(1000, '\0');
        const ssize_t peeked = recv(socket.fd(), &raw[0], raw.size(), MSG_PEEK);
        EXPECT_EQ(raw.substr(0, static_cast<size_t>(peeked)).find(out), std::string::npos);
        std::string in(out.size(), '\0');
        ASSERT_EQ(socket.stream().Receive(&in[0], in.size()), static_cast<ssize_t>(in.size()));
        EXPECT_EQ(in, out);
      }
    }
  }
}

// Host names play no role, and a certificate for clients alone is enough.
TEST_F(SecureMeshTest, BothEndsRefuseOrLearnThatTheyAreRefused) {
  const TlsFiles good = ca_.Sign("good", {"good", "URI:spiffe://domain/good"});
  const CertificateAuthority other(::testing::TempDir(), "other-ca");
  TlsFiles foreign = other.Sign("foreign", {"foreign", ""});
  CertificateNames names = {"late", ""};
  names.ends = -absl::Minutes(1);
  const TlsFiles expired = ca_.Sign("late", names);
  struct Case {
    std::vector<TlsFiles> files;  // by rank
    std::string at_0;
    std::string at_1;
  };
  TlsFiles stranger = foreign;
  stranger.ca = ca_.path();
  const std::vector<Case> cases = {
      {{good, expired}, "certificate has expired (of cn:late", "certificate expired"},
      {{expired, good}, "certificate expired", "certificate has expired"},
      {{good, stranger}, "unable to get local issuer", "unknown ca"},
      {{stranger, good}, "unknown ca", "unable to get local issuer"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(absl::StrCat(each.at_0, " / ", each.at_1));
    Connect(2);
    const std::string at_0 = each.at_0.substr(0, each.at_0.find(" (of"));
    ExpectFailures(SecureAll(each.files), absl::StatusCode::kUnauthenticated, at_0, each.at_1);
  }
  // Two CAs that do not know each other.
  Connect(2);
  for (const absl::Status& result : SecureAll({good, foreign})) {
    EXPECT_EQ(result.code(), absl::StatusCode::kUnauthenticated) << result;
  }
}

TEST_F(SecureMeshTest, ARankOfAnotherGroupIsRefused) {
  Connect(2);
  const std::shared_ptr<SSL_CTX> context = ContextOf(ca_.Sign("rank", {"rank", ""}));
  std::vector<absl::Status> results(2);
  InParallel(2, [&](int rank) {
    const Id128 secret = {kSecret.high, kSecret.low + static_cast<uint64_t>(rank)};
    results[static_cast<size_t>(rank)] = Secure(rank, context, Soon(), secret);
    meshes_[static_cast<size_t>(rank)] = Mesh();
  });
  // The rank below proves itself first, so only the other one compares.
  EXPECT_THAT(std::string(results[1].message()), HasSubstr("rank 0 at "));
  EXPECT_THAT(std::string(results[1].message()), HasSubstr("another group or generation"));
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable) << results[0];
  EXPECT_THAT(std::string(results[0].message()), HasSubstr("rank 1 at "));
}

// Passes the bytes of two connections on, with a certificate of its own on both. Ends with either.
class Relay {
 public:
  Relay(const std::shared_ptr<SSL_CTX>& context, UniqueFd to_0, UniqueFd to_1)
      : fds_{std::move(to_0), std::move(to_1)},
        sessions_{TlsSession::ConnectToAny(context, fds_[0].get()),  // rank 0 is the server
                  TlsSession::Accept(context, fds_[1].get())} {}

  void Run() {
    for (const auto& session : sessions_) {
      while (session->Handshake() == TlsSession::Progress::kWantInput) Wait();
    }
    while (PassOn(0, 1) && PassOn(1, 0)) Wait();
    for (UniqueFd& fd : fds_) fd = UniqueFd();
  }

 private:
  void Wait() {
    pollfd polled[2] = {{fds_[0].get(), POLLIN, 0}, {fds_[1].get(), POLLIN, 0}};
    poll(polled, 2, 60000);
  }
  bool PassOn(int from, int to) {
    char bytes[1000];
    const ssize_t count = sessions_[from]->Receive(bytes, sizeof(bytes));
    if (count < 0 && errno == EAGAIN) return true;
    return count > 0 && sessions_[to]->Send({bytes, static_cast<size_t>(count)}) == count;
  }

  UniqueFd fds_[2];
  const std::shared_ptr<TlsSession> sessions_[2];
};

TEST_F(SecureMeshTest, ARelayWithACertificateOfTheSameCaFails) {
  const std::shared_ptr<SSL_CTX> rank = ContextOf(ca_.Sign("rank", {"rank", ""}));
  const std::shared_ptr<SSL_CTX> third = ContextOf(ca_.Sign("third", {"third", ""}));
  Connect(2, 1);
  UniqueFd relayed[2];
  for (size_t i = 0; i < 2; ++i) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    meshes_[i].streams[1 - i][0] = RankSocket(UniqueFd(ends[0]));
    relayed[i] = UniqueFd(ends[1]);
  }
  Relay relay(third, std::move(relayed[0]), std::move(relayed[1]));
  std::thread relays([&relay] { relay.Run(); });
  std::vector<absl::Status> results(2);
  InParallel(2, [&](int i) {
    results[static_cast<size_t>(i)] = Secure(i, rank);
    meshes_[static_cast<size_t>(i)] = Mesh();
  });
  relays.join();
  EXPECT_EQ(results[1].code(), absl::StatusCode::kFailedPrecondition) << results[1];
  EXPECT_THAT(std::string(results[1].message()), HasSubstr("a relay between the ranks"));
  EXPECT_FALSE(results[0].ok());
}

TEST_F(SecureMeshTest, OtherBytesAreNoHandshake) {
  const std::shared_ptr<SSL_CTX> context = ContextOf(ca_.Sign("rank", {"rank", ""}));
  for (const int rank : {0, 1}) {
    Connect(2);
    const int peer = 1 - rank;
    ASSERT_EQ(Socket(peer, rank, 1).stream().Send("GET / HTTP/1.1\r\nHost: example\r\n\r\n"), 33);
    const absl::Status status = Secure(rank, context);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("rank ", peer, " at ", addresses_[1 - rank])));
  }
}

TEST_F(SecureMeshTest, ASilentRankIsNamedAtTheDeadline) {
  const std::shared_ptr<SSL_CTX> context = ContextOf(ca_.Sign("rank", {"rank", ""}));
  Connect(3);
  std::vector<absl::Status> results(3);
  InParallel(2, [&](int rank) {
    results[static_cast<size_t>(rank)] = Secure(rank, context, In(absl::Milliseconds(300)));
  });
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(results[rank].code(), absl::StatusCode::kDeadlineExceeded) << results[rank];
    EXPECT_THAT(std::string(results[rank].message()),
                StartsWith("rank 2 did not finish the TLS handshake within "));
  }
}

// The other end says the first half of a hello and then nothing.
TEST_F(SecureMeshTest, HalfAHandshakeIsBounded) {
  const std::shared_ptr<SSL_CTX> context = ContextOf(ca_.Sign("rank", {"rank", ""}));
  Connect(2, 1);
  std::thread half([&] {
    const absl::Status status = Secure(1, context, absl::InfinitePast());
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  });
  half.join();
  const absl::Status status = Secure(0, context, In(absl::Milliseconds(200)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("rank 1 did not finish"));
}

TEST_F(SecureMeshTest, ARankThatDiesIsNamedAtOnce) {
  const std::shared_ptr<SSL_CTX> context = ContextOf(ca_.Sign("rank", {"rank", ""}));
  Connect(2);
  meshes_[1] = Mesh();
  const absl::Status status = Secure(0, context);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              StartsWith(absl::StrCat("rank 1 at ", addresses_[1], ": TLS handshake: ")));
}

}  // namespace
}  // namespace cohort::worker
