// One file, though long: all tests act on the two ends of one socket pair, which the helpers make.
#include "base/tls/tls_session.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/tls/resumption.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using testing::CertificateAuthority;
using testing::CertificateNames;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Progress = TlsSession::Progress;

const CertificateNames kServer{"server", "DNS:localhost,IP:127.0.0.1"};
const CertificateNames kClient{"rank-0", "URI:spiffe://domain/ns/jobs/rank-0,DNS:rank-0"};

std::shared_ptr<SSL_CTX> ContextOf(const TlsFiles& files, TlsSide side) {
  auto loaded = TlsContext::Load(files, side);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return (*loaded)->Current(absl::UnixEpoch());
}

class TlsSessionTest : public ::testing::Test {
 protected:
  void Connect(const TlsFiles& server, const TlsFiles& client,
               const std::string& host = "localhost") {
    ConnectBy(ContextOf(server, TlsSide::kServer), ContextOf(client, TlsSide::kClient), host);
  }
  void ConnectBy(const std::shared_ptr<SSL_CTX>& server, const std::shared_ptr<SSL_CTX>& client,
                 const std::string& host) {
    MakeSockets();
    server_ = TlsSession::Accept(server, server_fd_.get());
    client_ = TlsSession::Connect(client, client_fd_.get(), host);
    Handshake();
  }
  void MakeSockets() {
    int fds[2] = {};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    server_fd_ = UniqueFd(fds[0]);
    client_fd_ = UniqueFd(fds[1]);
  }
  void Handshake() {
    Progress at_server = Progress::kWantInput;
    Progress at_client = Progress::kWantInput;
    const auto goes_on = [](Progress progress) {
      return progress == Progress::kWantInput || progress == Progress::kWantOutput;
    };
    for (int i = 0; i < 10; ++i) {
      if (goes_on(at_client)) at_client = client_->Handshake();
      if (goes_on(at_server)) at_server = server_->Handshake();
    }
    server_done_ = at_server == Progress::kDone;
    client_done_ = at_client == Progress::kDone;
  }
  void Connect() {
    Connect(ca_.Sign("server", kServer), ca_.Sign("client", kClient));
    ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
  }

  const CertificateAuthority ca_{::testing::TempDir()};
  UniqueFd server_fd_;
  UniqueFd client_fd_;
  std::shared_ptr<TlsSession> server_;
  std::shared_ptr<TlsSession> client_;
  bool server_done_ = false;
  bool client_done_ = false;
};

TEST_F(TlsSessionTest, BothLearnEachOthersNames) {
  Connect();
  EXPECT_THAT(server_->peer().uris, ElementsAre("spiffe://domain/ns/jobs/rank-0"));
  EXPECT_THAT(server_->peer().dns_names, ElementsAre("rank-0"));
  EXPECT_EQ(server_->peer().common_name, "rank-0");
  EXPECT_EQ(client_->peer().name(), "localhost");
}

TEST_F(TlsSessionTest, LongNamesAreLeftOut) {
  const std::string longest = "spiffe://domain/" + std::string(2032, 'x');
  CertificateNames names;
  names.common_name = "rank-0";
  names.alternative_names = absl::StrCat("URI:", longest, ",URI:", longest, "y");
  Connect(ca_.Sign("server", kServer), ca_.Sign("client", names));
  ASSERT_TRUE(server_done_) << server_->error();
  EXPECT_THAT(server_->peer().uris, ElementsAre(longest));
}

TEST_F(TlsSessionTest, AServerWithoutCaAsksForNoCertificate) {
  TlsFiles server = ca_.Sign("server", kServer);
  server.ca.clear();
  Connect(server, {"", "", ca_.path()}, "127.0.0.1");
  EXPECT_TRUE(server_done_ && client_done_);
  EXPECT_TRUE(server_->peer().empty());
}

TEST_F(TlsSessionTest, AServerMayTakeClientsWithoutCertificate) {
  TlsFiles server = ca_.Sign("server", kServer);
  server.client_certificate_optional = true;
  Connect(server, {"", "", ca_.path()});
  EXPECT_TRUE(server_done_ && client_done_);
  EXPECT_TRUE(server_->peer().empty());
  Connect(server, ca_.Sign("client", kClient));
  ASSERT_TRUE(server_done_ && client_done_);
  EXPECT_EQ(server_->peer().common_name, "rank-0");
  // A certificate that is there must be right.
  const CertificateAuthority other(::testing::TempDir(), "other-ca");
  TlsFiles foreign = other.Sign("foreign", kClient);
  foreign.ca = ca_.path();
  Connect(server, foreign);
  EXPECT_FALSE(server_done_);
}

TEST_F(TlsSessionTest, RefusedCertificatesAreNamed) {
  const TlsFiles server = ca_.Sign("server", kServer);
  const CertificateAuthority other(::testing::TempDir(), "other CA");
  struct Case {
    TlsFiles server;
    TlsFiles client;
    std::string host;
    std::string at_server;
    std::string at_client;
  };
  CertificateNames expired = kClient;
  expired.ends = -absl::Minutes(1);
  CertificateNames early = kServer;
  early.begins = absl::Minutes(1);
  TlsFiles foreign = other.Sign("foreign", kClient);
  foreign.ca = ca_.path();
  TlsFiles anonymous{"", "", ca_.path()};
  const TlsFiles client = ca_.Sign("client", kClient);
  const std::vector<Case> cases = {
      {server, client, "elsewhere", "", "hostname mismatch (of localhost)"},
      {server, client, "127.0.0.2", "", "IP address mismatch (of localhost)"},
      {server, other.Sign("client2", kClient), "localhost", "unknown ca",
       "self-signed certificate in certificate chain (of test-ca)"},
      {ca_.Sign("early", early), client, "localhost", "", "not yet valid (of localhost)"},
      {server, ca_.Sign("late", expired), "localhost",
       "certificate has expired (of spiffe://domain/ns/jobs/rank-0)", "certificate expired"},
      {server, foreign, "localhost", "unable to get local issuer", "unknown ca"},
      {server, anonymous, "localhost", "did not return a certificate", "certificate required"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(absl::StrCat(each.host, " / ", each.at_server, " / ", each.at_client));
    Connect(each.server, each.client, each.host);
    EXPECT_FALSE(server_done_);
    // With TLS 1.3 a client learns with its first answer that the server refuses it.
    char byte = 0;
    if (client_done_) {
      EXPECT_EQ(client_->Receive(&byte, 1), -1);
    }
    if (!each.at_server.empty()) {
      EXPECT_THAT(std::string(server_->error().message()), HasSubstr(each.at_server));
      EXPECT_EQ(server_->error().code(), absl::StatusCode::kUnauthenticated);
    }
    EXPECT_THAT(std::string(client_->error().message()), HasSubstr(each.at_client));
    EXPECT_EQ(client_->error().code(), absl::StatusCode::kUnauthenticated);
  }
}

class TrustDomainTest : public TlsSessionTest {
 protected:
  // A server with `cas`.
  std::shared_ptr<SSL_CTX> ContextWith(std::vector<std::string> cas) const {
    TlsFiles files = ca_.Sign("server", kServer);
    files.ca.clear();
    files.client_cas = std::move(cas);
    return ContextOf(files, TlsSide::kServer);
  }
  // The error of a server for a client with a certificate of `ca`.
  std::string ErrorFor(const CertificateAuthority& ca, const std::string& names) {
    TlsFiles client = ca.Sign("client", {"client", names});
    client.ca = ca_.path();
    ConnectBy(context_, ContextOf(client, TlsSide::kClient), "localhost");
    return std::string(server_->error().message());
  }

  const CertificateAuthority partner_{::testing::TempDir(), "partner-ca"};
  const CertificateAuthority open_{::testing::TempDir(), "open-ca"};
  std::shared_ptr<SSL_CTX> context_ = ContextWith(
      {"prod=" + ca_.path(), "partner=" + partner_.path(), "lab=" + partner_.path(), open_.path()});
};

TEST_F(TrustDomainTest, ACaSignsIdsOfItsDomainsAlone) {
  EXPECT_EQ(ErrorFor(ca_, "URI:spiffe://prod/a"), "");
  EXPECT_EQ(ErrorFor(partner_, "URI:spiffe://partner/a"), "");
  EXPECT_EQ(ErrorFor(partner_, "URI:spiffe://lab/a"), "");
  EXPECT_EQ(ErrorFor(partner_, "URI:spiffe://prod/a"),
            "the certificate of the peer is refused: its CA signs ids of the trust domain partner "
            "and of lab alone (of spiffe://prod/a)");
  char byte = 0;
  EXPECT_EQ(client_->Receive(&byte, 1), -1);
  EXPECT_EQ(client_->error().code(), absl::StatusCode::kUnauthenticated) << client_->error();
  for (const char* names :
       {"URI:spiffe://partner/a", "URI:spiffe://prod.example/a", "URI:spiffe://prod",
        "URI:spiffe://prod/a,URI:spiffe://partner/a", "URI:https://prod/a", "DNS:prod", ""}) {
    EXPECT_THAT(ErrorFor(ca_, names), HasSubstr("signs ids of the trust domain prod alone"))
        << names;
  }
}

TEST_F(TrustDomainTest, ACaWithoutADomainSignsForAll) {
  for (const char* names : {"URI:spiffe://prod/a", "URI:spiffe://other/a", "DNS:a", ""}) {
    EXPECT_EQ(ErrorFor(open_, names), "") << names;
  }
  EXPECT_EQ(server_->peer().common_name, "client");
}

// Another CA may give the DNS name to another client.
TEST_F(TrustDomainTest, AnIdOfADomainHasNoFurtherNames) {
  TlsFiles client = ca_.Sign("client", {"client", "URI:spiffe://prod/a,DNS:a"});
  const auto client_context = ContextOf(client, TlsSide::kClient);
  for (const bool resumed : {false, true}) {
    ConnectBy(context_, client_context, "localhost");
    ASSERT_TRUE(server_done_) << server_->error();
    EXPECT_EQ(server_->resumed(), resumed);
    EXPECT_THAT(server_->peer().uris, ElementsAre("spiffe://prod/a"));
    EXPECT_THAT(server_->peer().dns_names, ElementsAre());
    char byte = 0;
    EXPECT_EQ(client_->Receive(&byte, 1), -1);
  }
  EXPECT_EQ(ErrorFor(open_, "URI:spiffe://other/a,DNS:a"), "");
  EXPECT_THAT(server_->peer().dns_names, ElementsAre("a"));
}

TEST_F(TrustDomainTest, NewFilesCountForOpenConnections) {
  EXPECT_EQ(ErrorFor(ca_, "URI:spiffe://prod/a"), "");
  EXPECT_EQ(server_->VerifyAgain(*context_), absl::OkStatus());
  const auto changed = ContextWith({"lab=" + ca_.path()});
  EXPECT_EQ(
      server_->VerifyAgain(*changed).message(),
      "the certificate of the peer is refused: its CA signs ids of the trust domain lab alone "
      "(of spiffe://prod/a)");
}

// A client often chooses the common name of its certificate.
TEST_F(TlsSessionTest, ACommonNameIsNoHost) {
  for (const char* names : {"URI:spiffe://domain/ns/team-b/sa/x", "DNS:elsewhere", ""}) {
    SCOPED_TRACE(names);
    Connect(ca_.Sign("server", {"localhost", names}), ca_.Sign("client", kClient), "localhost");
    EXPECT_FALSE(client_done_);
    EXPECT_THAT(std::string(client_->error().message()), HasSubstr("hostname mismatch"));
  }
}

TEST_F(TlsSessionTest, HostsThatNoCertificateCanName) {
  Connect(ca_.Sign("server", kServer), ca_.Sign("client", kClient), "");
  EXPECT_FALSE(client_done_);
  EXPECT_EQ(client_->error().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TlsSessionTest, PlainTextIsNoHandshake) {
  Connect();
  int fds[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const UniqueFd own(fds[0]);
  const UniqueFd peer(fds[1]);
  const auto session =
      TlsSession::Accept(ContextOf(ca_.Sign("server", kServer), TlsSide::kServer), own.get());
  ASSERT_EQ(send(peer.get(), "GET / HTTP/1.1\r\n", 16, 0), 16);
  EXPECT_EQ(session->Handshake(), Progress::kFailed);
  EXPECT_EQ(session->error().code(), absl::StatusCode::kFailedPrecondition);
}

// Bytes in both directions, in pieces of all sizes, through a socket that is often full.
TEST_F(TlsSessionTest, BytesArriveInOrder) {
  Connect();
  client_->ChangeKeyEvery(100000);
  server_->ChangeKeyEvery(100000);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  std::string text(3 << 20, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  for (const auto& [from, to] : {std::pair(client_, server_), std::pair(server_, client_)}) {
    std::string received;
    size_t sent = 0;
    size_t least = 0;  // what did not fit is tried again, with more behind it or not
    while (received.size() < text.size()) {
      std::vector<iovec> pieces;
      size_t end = sent;
      for (int i = 0; (i < 5 || end - sent < least) && end < text.size(); ++i) {
        const size_t most = random() % 2 == 0 ? 300 : 40000;
        const size_t size = std::min<size_t>(random() % most, text.size() - end);
        pieces.push_back({&text[end], size});
        end += size;
      }
      const ssize_t count = from->Send(pieces);
      ASSERT_TRUE(count >= 0 || errno == EAGAIN) << errno;
      if (count > 0) sent += static_cast<size_t>(count);
      least = end - sent;
      char buffer[50000];
      const size_t room = 1 + random() % sizeof(buffer);
      const ssize_t read = to->Receive(buffer, room);
      if (read > 0) received.append(buffer, static_cast<size_t>(read));
    }
    ASSERT_EQ(received.size(), text.size());
    EXPECT_EQ(received, text);
  }
}

TEST_F(TlsSessionTest, InputThatTheSocketNoLongerHas) {
  Connect();
  ASSERT_EQ(client_->Send("abcdef"), 6);
  char bytes[6] = {};
  EXPECT_EQ(server_->Peek(bytes, 3), 3);
  EXPECT_EQ(absl::string_view(bytes, 3), "abc");
  EXPECT_EQ(server_->Receive(bytes, 4), 4);
  EXPECT_EQ(absl::string_view(bytes, 4), "abcd");
  EXPECT_TRUE(server_->HasInput());
  EXPECT_EQ(server_->Receive(bytes, 6), 2);
  EXPECT_FALSE(server_->HasInput());
  EXPECT_EQ(server_->Receive(bytes, 6), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(TlsSessionTest, PeekSeesTheBytesOfSeveralRecords) {
  Connect();
  char bytes[8] = {};
  EXPECT_EQ(server_->Peek(bytes, 4), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(client_->Send("ab"), 2);
  EXPECT_EQ(server_->Peek(bytes, 4), 2);
  ASSERT_EQ(client_->Send("cd"), 2);
  ASSERT_EQ(client_->Send("efg"), 3);
  EXPECT_EQ(server_->Peek(bytes, 4), 4);
  EXPECT_EQ(absl::string_view(bytes, 4), "abcd");
  EXPECT_EQ(server_->Receive(bytes, 3), 3);
  EXPECT_TRUE(server_->HasInput());
  EXPECT_EQ(server_->Receive(bytes + 3, 5), 4);
  EXPECT_EQ(absl::string_view(bytes, 7), "abcdefg");
  EXPECT_FALSE(server_->HasInput());
}

TEST_F(TlsSessionTest, BytesThatWerePeekedArriveBeforeTheEnd) {
  Connect();
  ASSERT_EQ(client_->Send("ab"), 2);
  client_.reset();
  client_fd_ = UniqueFd();
  char bytes[8] = {};
  EXPECT_EQ(server_->Peek(bytes, 8), 2);
  EXPECT_EQ(server_->Receive(bytes, 8), 2);
  EXPECT_EQ(server_->Receive(bytes, 8), 0);
}

// A change of the key costs the other side more time than the bytes that bring it.
TEST_F(TlsSessionTest, APeerMayNotChangeItsKeyAllTheTime) {
  Connect();
  client_->ChangeKeyEvery(1);
  int received = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(client_->Send("a"), 1);
    char byte = 0;
    if (server_->Receive(&byte, 1) != 1) break;
    ++received;
  }
  EXPECT_GT(received, 10);
  EXPECT_LT(received, 100);
  EXPECT_THAT(std::string(server_->error().message()), HasSubstr("changes its key too often"));
}

TEST_F(TlsSessionTest, SeveralPiecesOfMemory) {
  Connect();
  ASSERT_EQ(client_->Send("abcdef"), 6);
  char first[4] = {};
  char second[10] = {};
  const iovec pieces[] = {{first, 4}, {second, 10}};
  EXPECT_EQ(server_->Receive(pieces), 6);
  EXPECT_EQ(absl::string_view(first, 4), "abcd");
  EXPECT_EQ(absl::string_view(second, 2), "ef");
  EXPECT_EQ(server_->Receive(pieces), -1);
  EXPECT_EQ(errno, EAGAIN);
}

class ResumptionTest : public TlsSessionTest {
 protected:
  // Connects with the same contexts again; the client reads what the server sends.
  void ConnectAgain(const std::string& host = "localhost") {
    const TlsSide sides[] = {TlsSide::kServer, TlsSide::kClient};
    for (int i = 0; i < 2; ++i) {
      if (contexts_[i] != nullptr) continue;
      const TlsFiles files =
          i == 0 ? ca_.Sign("server", kServer) : ca_.Sign("client", client_names_);
      contexts_[i] = ContextOf(files, sides[i]);
    }
    ConnectBy(contexts_[0], contexts_[1], host);
    char byte = 0;
    EXPECT_EQ(client_->Receive(&byte, 1), -1);
  }

  CertificateNames client_names_ = kClient;
  std::shared_ptr<SSL_CTX> contexts_[2];
};

TEST_F(ResumptionTest, ALaterConnectionResumesTheSession) {
  ConnectAgain();
  ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
  EXPECT_FALSE(client_->resumed());
  for (int i = 0; i < 3; ++i) {
    ConnectAgain();
    ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
    EXPECT_TRUE(client_->resumed() && server_->resumed());
    EXPECT_THAT(server_->peer().uris, ElementsAre("spiffe://domain/ns/jobs/rank-0"));
    EXPECT_EQ(client_->peer().name(), "localhost");
    ASSERT_EQ(client_->Send("abc"), 3);
    char bytes[3] = {};
    EXPECT_EQ(server_->Receive(bytes, 3), 3);
  }
}

// All clients of a process may connect at the same time.
TEST_F(ResumptionTest, AnyNumberOfConnectionsResumeOneSession) {
  ConnectAgain();
  const long sessions = SSL_CTX_sess_number(contexts_[0].get());
  for (int i = 0; i < 2 * kMaxSessions; ++i) {
    ConnectAgain();
    ASSERT_TRUE(client_->resumed()) << i;
  }
  EXPECT_EQ(SSL_CTX_sess_number(contexts_[0].get()), sessions);
}

// Handshakes of strangers without a call can end a session. It costs its client one whole
// handshake.
TEST_F(ResumptionTest, AClientIsServedAfterNewerSessionsHaveEndedItsOwn) {
  const auto add_sessions = [this](long count) {
    for (long i = 0; i < count; ++i) {
      MakeSockets();
      server_ = TlsSession::Accept(contexts_[0], server_fd_.get());
      client_ = TlsSession::ConnectToAny(contexts_[1], client_fd_.get());
      Handshake();
      ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
    }
    EXPECT_LE(SSL_CTX_sess_number(contexts_[0].get()), kMaxSessions);
  };
  ConnectAgain();
  add_sessions(kMaxSessions / 2);
  ConnectAgain();
  EXPECT_TRUE(client_->resumed());
  add_sessions(kMaxSessions);
  ConnectAgain();
  ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
  EXPECT_FALSE(client_->resumed());
  ConnectAgain();
  EXPECT_TRUE(client_->resumed());
}

// Connections end without a goodbye.
TEST_F(ResumptionTest, AfterTheEndOfTheConnectionThatBeganTheSession) {
  ConnectAgain();
  char byte = 0;
  server_fd_ = UniqueFd();
  EXPECT_EQ(client_->Receive(&byte, 1), 0);
  ConnectAgain();
  EXPECT_TRUE(client_->resumed());
  client_fd_ = UniqueFd();
  EXPECT_EQ(server_->Receive(&byte, 1), 0);
  ConnectAgain();
  EXPECT_TRUE(client_->resumed());
}

TEST_F(ResumptionTest, OnlyWithTheSameHost) {
  ConnectAgain();
  ConnectAgain("elsewhere");
  EXPECT_FALSE(client_done_);
  EXPECT_THAT(std::string(client_->error().message()), HasSubstr("hostname mismatch"));
  ConnectAgain("127.0.0.1");
  ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
  EXPECT_FALSE(client_->resumed());
}

TEST_F(ResumptionTest, NewFilesEndSessions) {
  ConnectAgain();
  for (std::shared_ptr<SSL_CTX>& context : contexts_) {
    context = nullptr;
    ConnectAgain();
    ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
    EXPECT_FALSE(client_->resumed());
    ConnectAgain();
    EXPECT_TRUE(client_->resumed());
  }
}

TEST_F(ResumptionTest, AnExpiredCertificateResumesNothing) {
  client_names_.ends = absl::Seconds(2);
  ConnectAgain();
  ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  do {
    ConnectAgain();
  } while (server_done_ && absl::Now() < deadline);
  EXPECT_EQ(server_->error().message(),
            "the certificate of the peer is refused: certificate has expired (of "
            "spiffe://domain/ns/jobs/rank-0)");
}

TEST_F(ResumptionTest, NotWithTls12) {
  for (int i = 0; i < 2; ++i) {
    ConnectAgain();
    SSL_CTX_set_max_proto_version(contexts_[1].get(), TLS1_2_VERSION);
    ConnectAgain();
    ASSERT_TRUE(server_done_ && client_done_) << server_->error() << client_->error();
    EXPECT_FALSE(client_->resumed());
    contexts_[1] = nullptr;
  }
}

TEST_F(TlsSessionTest, APeerThatIsGone) {
  Connect();
  // Unread bytes would reset the connection: the server has sent a session.
  char byte = 0;
  EXPECT_EQ(client_->Receive(&byte, 1), -1);
  client_fd_ = UniqueFd();
  EXPECT_EQ(server_->Receive(&byte, 1), 0);
  EXPECT_EQ(server_->Send("x"), -1);
  EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace cohort
