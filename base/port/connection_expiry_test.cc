#include "base/port/connection_expiry.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/tls/testing/certificates.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using testing::CertificateAuthority;

const Instant kStart = absl::UnixEpoch() + absl::Hours(1);

// Both ends of a connection whose handshake is done.
struct Pair {
  UniqueFd server_fd;
  UniqueFd client_fd;
  std::shared_ptr<TlsSession> server;
  std::shared_ptr<TlsSession> client;
};

class ConnectionExpiryTest : public ::testing::Test {
 protected:
  ConnectionExpiryTest() : folder_(::testing::TempDir()), ca_(folder_, "ca") {
    // The server's own file: a test changes it.
    files_ = ca_.Sign("server", {"server", "DNS:localhost"});
    files_.ca = absl::StrCat(folder_, "/clients-ca.crt");
    TrustClientsOf(ca_);
    Load();
  }

  void Load() {
    auto loaded = TlsContext::Load(files_, TlsSide::kServer);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    server_ = *std::move(loaded);
  }
  void TrustClientsOf(const CertificateAuthority& ca) {
    std::filesystem::copy_file(ca.path(), files_.ca + ".new",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(files_.ca + ".new", files_.ca);
  }
  Pair Connect(const std::string& name, absl::Duration ends = absl::Hours(1)) {
    testing::CertificateNames names{name, absl::StrCat("DNS:", name)};
    names.ends = ends;
    const auto client = TlsContext::Load(ca_.Sign(name, names), TlsSide::kClient);
    EXPECT_TRUE(client.ok()) << client.status();
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    Pair pair{UniqueFd(fds[0]), UniqueFd(fds[1]), TlsSession::Accept(server_->Current(now_), fds[0]),
              TlsSession::ConnectToAny((*client)->Current(now_), fds[1])};
    using Progress = TlsSession::Progress;
    Progress client_end = Progress::kWantInput;
    Progress server_end = Progress::kWantInput;
    while (client_end == Progress::kWantInput || server_end == Progress::kWantInput) {
      client_end = pair.client->Handshake();
      server_end = pair.server->Handshake();
    }
    EXPECT_EQ(server_end, Progress::kDone) << pair.server->error();
    return pair;
  }
  // All that expires at `now_`, in several calls.
  std::vector<uint64_t> Expired(absl::Time wall_now = absl::Now()) {
    std::vector<uint64_t> cookies;
    bool more = true;
    while (more) {
      for (const auto& [cookie, why] : expiry_->Expired(now_, wall_now, &more)) {
        cookies.push_back(cookie);
        why_ = std::string(why.message());
      }
    }
    return cookies;
  }
  void Start(absl::Duration max_age = absl::ZeroDuration(), bool ends_with_certificates = true) {
    expiry_ = std::make_unique<ConnectionExpiry>(server_, max_age, ends_with_certificates);
  }

  const std::string folder_;
  const CertificateAuthority ca_;
  TlsFiles files_;
  std::shared_ptr<TlsContext> server_;
  std::unique_ptr<ConnectionExpiry> expiry_;
  Instant now_ = kStart;
  std::string why_;
};

TEST_F(ConnectionExpiryTest, AConnectionEndsWithItsCertificate) {
  Start();
  const Pair brief = Connect("brief", absl::Minutes(1));
  const Pair long_lived = Connect("long-lived", absl::Minutes(30));
  expiry_->Add(1, brief.server, now_);
  expiry_->Add(2, long_lived.server, now_);
  EXPECT_THAT(Expired(), IsEmpty());
  now_ += absl::Seconds(2);
  EXPECT_THAT(Expired(absl::Now() + absl::Minutes(2)), ElementsAre(1));
  EXPECT_THAT(why_, HasSubstr("certificate has ended"));
  // The CA's own certificate ends after an hour.
  const Pair longer = Connect("longer", absl::Hours(5));
  expiry_->Add(3, longer.server, now_);
  now_ += absl::Seconds(2);
  EXPECT_THAT(Expired(absl::Now() + absl::Hours(2)), UnorderedElementsAre(2, 3));
  EXPECT_TRUE(expiry_->empty());
}

// As of a worker, whose sessions end with their connections: a new certificate of the server is no
// reason to end clients whose own ones have ended.
TEST_F(ConnectionExpiryTest, AConnectionMayOutliveItsCertificate) {
  Start(absl::ZeroDuration(), /*ends_with_certificates=*/false);
  const Pair brief = Connect("brief", absl::Seconds(2));
  expiry_->Add(1, brief.server, now_);
  const absl::Time ends = brief.server->peer().not_after;
  while (absl::Now() <= ends + absl::Seconds(1)) std::this_thread::yield();
  ca_.Sign("server", {"server", "DNS:localhost"});
  now_ += absl::Seconds(2);
  EXPECT_THAT(Expired(), IsEmpty());
  EXPECT_EQ(server_->reloads(), 1);
  const CertificateAuthority other(folder_, "other-ca");
  TrustClientsOf(other);
  now_ += absl::Seconds(2);
  EXPECT_THAT(Expired(), ElementsAre(1));
}

TEST_F(ConnectionExpiryTest, AConnectionEndsWhenItsCaIsReplaced) {
  Start();
  const Pair old = Connect("client");
  expiry_->Add(1, old.server, now_);
  EXPECT_THAT(Expired(), IsEmpty());
  const CertificateAuthority other(folder_, "other-ca");
  TrustClientsOf(other);
  EXPECT_THAT(Expired(), IsEmpty()) << "it looks once a second";
  now_ += absl::Seconds(2);
  EXPECT_THAT(Expired(), ElementsAre(1));
  EXPECT_THAT(why_, HasSubstr("client"));
}

TEST_F(ConnectionExpiryTest, AHandshakeWithTheOldFilesIsCheckedToo) {
  Start();
  const Pair old = Connect("client");
  const CertificateAuthority other(folder_, "other-ca");
  TrustClientsOf(other);
  now_ += absl::Seconds(2);
  server_->Current(now_);
  expiry_->Add(1, old.server, now_);
  EXPECT_THAT(Expired(), ElementsAre(1));
}

TEST_F(ConnectionExpiryTest, ManyConnectionsAreCheckedInTurns) {
  Start();
  const Pair one = Connect("client");
  for (uint64_t cookie = 1; cookie <= 120; ++cookie) expiry_->Add(cookie, one.server, now_);
  const CertificateAuthority other(folder_, "other-ca");
  TrustClientsOf(other);
  now_ += absl::Seconds(2);
  bool more = false;
  EXPECT_LT(expiry_->Expired(now_, absl::Now(), &more).size(), 120u);
  EXPECT_TRUE(more);
  Expired();
  EXPECT_TRUE(expiry_->empty());
}

// They wait for a check of their certificates when their clients leave.
TEST_F(ConnectionExpiryTest, ConnectionsMayEndBetweenTheTurns) {
  Start();
  Pair leaves = Connect("client");
  const Pair stays = Connect("other");
  constexpr uint64_t kConnections = 200;
  for (uint64_t cookie = 1; cookie <= kConnections; ++cookie) {
    expiry_->Add(cookie, cookie % 2 == 0 ? stays.server : leaves.server, now_);
  }
  const CertificateAuthority other(folder_, "other-ca");
  TrustClientsOf(other);
  now_ += absl::Seconds(2);
  bool more = false;
  size_t even = 0;
  for (const auto& [cookie, why] : expiry_->Expired(now_, absl::Now(), &more)) {
    even += cookie % 2 == 0 ? 1 : 0;
  }
  ASSERT_TRUE(more);
  leaves = Pair();
  now_ += absl::Seconds(2);
  for (const uint64_t cookie : Expired()) {
    EXPECT_EQ(cookie % 2, 0u) << cookie;
    ++even;
  }
  EXPECT_EQ(even, kConnections / 2);
  EXPECT_TRUE(expiry_->empty());
}

TEST_F(ConnectionExpiryTest, ARevokedCertificateEndsItsConnection) {
  files_.crl = ca_.Revoke("clients", "");
  Load();
  Start();
  const Pair good = Connect("good");
  const Pair stolen = Connect("stolen");
  expiry_->Add(1, good.server, now_);
  expiry_->Add(2, stolen.server, now_);
  ca_.Revoke("clients", absl::StrCat(folder_, "/stolen.crt"));
  now_ += absl::Seconds(2);
  EXPECT_THAT(Expired(), ElementsAre(2));
  EXPECT_THAT(why_, HasSubstr("revoked"));
}

TEST_F(ConnectionExpiryTest, ConnectionsOfOneTimeEndApart) {
  Start(absl::Hours(10));
  const Pair one = Connect("client");
  for (uint64_t cookie = 1; cookie <= 100; ++cookie) expiry_->Add(cookie, one.server, now_);
  now_ += absl::Hours(8.99);
  EXPECT_THAT(Expired(), IsEmpty());
  now_ += absl::Hours(0.5);
  const size_t early = Expired().size();
  EXPECT_GT(early, 0u);
  EXPECT_LT(early, 100u);
  now_ += absl::Hours(0.52);
  EXPECT_EQ(early + Expired().size(), 100u);
  EXPECT_THAT(why_, HasSubstr("--max-connection-age"));
}

TEST_F(ConnectionExpiryTest, AConnectionThatHasEndedIsForgotten) {
  Start();
  {
    const Pair gone = Connect("client");
    expiry_->Add(1, gone.server, now_);
  }
  EXPECT_THAT(Expired(), IsEmpty());
  EXPECT_TRUE(expiry_->empty());
}

}  // namespace
}  // namespace cohort
