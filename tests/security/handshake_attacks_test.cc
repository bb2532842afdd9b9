// TLS clients that break the protocol or show certificates which are not theirs. The coordinator
// refuses each of them, its log says why, and another client is served.
#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/frame.h"
#include "base/port/limits/http2_guard.h"
#include "base/port/listener.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fuzz/access/guarded_coordinator.h"
#include "tests/security/forged_certificates.h"
#include "tests/security/raw_tls_client.h"

namespace cohort::testing {
namespace {

using coordinator::fuzz::GuardedCoordinator;
using ::testing::HasSubstr;

constexpr char kGoodUri[] = "spiffe://fuzz/good";
// The name and the size of a record that holds a handshake, without its content.
constexpr absl::string_view kRecordWithout("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9);

class HandshakeAttacksTest : public ::testing::Test {
 protected:
  // No test waits for this one.
  static ListenerOptions Patient() {
    ListenerOptions options;
    options.preface_timeout = absl::Seconds(60);
    return options;
  }
  void Start(const ListenerOptions& options) {
    coordinator_ = std::make_unique<GuardedCoordinator>(false, options);
  }
  void SetUp() override { Start(Patient()); }
  // Afterwards another client is served.
  void TearDown() override {
    const absl::Status served = coordinator_->ServesGoodClient();
    EXPECT_TRUE(served.ok()) << served;
  }

  // Has a client with `files` and `settings` connect, and expects the log to say `why` it is
  // refused.
  void ExpectRefused(const TlsFiles& files, const std::function<void(RawTlsClient&)>& settings,
                     const std::string& why) {
    ::testing::internal::CaptureStdout();  // the log of a program that has not set it up
    RawTlsClient client(coordinator_->path(), files);
    settings(client);
    const bool connected = client.Handshake();
    const std::string answer = connected ? client.Ask(framed_rpc::kPreface) : "";
    // The line is there when the connection is closed; the alert comes earlier.
    const bool closed = Closed(client.fd());
    const std::string log = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(closed);
    EXPECT_EQ(answer, "");
    EXPECT_NE(client.error(), "");
    EXPECT_THAT(log, HasSubstr("refused a connection"));
    EXPECT_THAT(log, HasSubstr(why));
  }
  void ExpectRefused(const TlsFiles& files, const std::string& why) {
    ExpectRefused(
        files, [](RawTlsClient&) {}, why);
  }
  static bool Closed(int fd) {
    char bytes[512];
    while (true) {
      const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
      if (count <= 0) return count == 0 || errno == ECONNRESET;
    }
  }

  std::unique_ptr<GuardedCoordinator> coordinator_;
};

TEST_F(HandshakeAttacksTest, AnOldVersionOfTls) {
  const auto set = [](RawTlsClient& client) {
    client.AllowOldVersions();
    SSL_set_max_proto_version(client.session(), TLS1_1_VERSION);
  };
  ExpectRefused(coordinator_->client(), set, "unsupported protocol");
}

TEST_F(HandshakeAttacksTest, ACipherWithoutForwardSecrecy) {
  const auto set = [](RawTlsClient& client) {
    SSL_set_max_proto_version(client.session(), TLS1_2_VERSION);
    SSL_set_cipher_list(client.session(), "AES128-GCM-SHA256");
  };
  ExpectRefused(coordinator_->client(), set, "no shared cipher");
}

TEST_F(HandshakeAttacksTest, ACertificateWithoutItsKey) {
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    Start(Patient());  // a log line a minute for each client
    const auto set = [&](RawTlsClient& client) {
      SSL_set_max_proto_version(client.session(), version);
      ShowWithoutItsKey(client.session(), coordinator_->client());
    };
    ExpectRefused({}, set, "bad signature");
  }
}

TEST_F(HandshakeAttacksTest, ACertificateThatAClientSigned) {
  const TlsFiles signer = coordinator_->ca().Sign("signer", {"signer", "URI:spiffe://fuzz/none"});
  const auto set = [&](RawTlsClient& client) {
    ShowSignedByClient(client.session(), signer, kGoodUri);
  };
  ExpectRefused({}, set, "invalid CA certificate");
}

TEST_F(HandshakeAttacksTest, ACertificateThatSignedItself) {
  const auto set = [](RawTlsClient& client) { ShowSelfSigned(client.session(), kGoodUri); };
  ExpectRefused({}, set, "self-signed certificate (of ");
}

TEST_F(HandshakeAttacksTest, ACertificateThatIsNotYetValid) {
  CertificateNames early{"early", absl::StrCat("URI:", kGoodUri)};
  early.begins = absl::Minutes(1);
  ExpectRefused(coordinator_->ca().Sign("early", early), "certificate is not yet valid");
}

TEST_F(HandshakeAttacksTest, ACertificateThatHasExpired) {
  CertificateNames late{"late", absl::StrCat("URI:", kGoodUri)};
  late.ends = -absl::Minutes(1);
  ExpectRefused(coordinator_->ca().Sign("late", late), "certificate has expired");
}

TEST_F(HandshakeAttacksTest, ACertificateOfAnotherCaWithTheSameName) {
  const CertificateAuthority other(::testing::TempDir());
  ExpectRefused(other.Sign("foreign", {"foreign", absl::StrCat("URI:", kGoodUri)}),
                "certificate signature failure");
}

TEST_F(HandshakeAttacksTest, NoCertificate) {
  ExpectRefused({}, "peer did not return a certificate");
}

TEST_F(HandshakeAttacksTest, ASecondHandshakeOnAConnection) {
  RawTlsClient client(coordinator_->path(), coordinator_->client());
  SSL_set_max_proto_version(client.session(), TLS1_2_VERSION);
  ASSERT_TRUE(client.Handshake()) << client.error();
  ASSERT_THAT(client.Ask(framed_rpc::kPreface), HasSubstr(std::string(framed_rpc::kPreface)));
  SSL_renegotiate(client.session());
  EXPECT_FALSE(client.Handshake());
  EXPECT_EQ(client.error(), "no renegotiation");
}

TEST_F(HandshakeAttacksTest, ASessionOfTls12ThatIsResumed) {
  RawTlsClient first(coordinator_->path(), coordinator_->client());
  SSL_set_max_proto_version(first.session(), TLS1_2_VERSION);
  ASSERT_TRUE(first.Handshake()) << first.error();
  ASSERT_NE(first.Ask(framed_rpc::kPreface), "");
  // The second client shows no certificate: a session that was resumed would need none.
  RawTlsClient second(coordinator_->path(), {});
  SSL_set_max_proto_version(second.session(), TLS1_2_VERSION);
  SSL_set_session(second.session(), SSL_get0_session(first.session()));
  const bool connected = second.Handshake();
  EXPECT_EQ(connected ? second.Ask(framed_rpc::kPreface) : "", "");
  EXPECT_EQ(SSL_session_reused(second.session()), 0);
}

// An eavesdropper sees the name of a session, and not its secret.
TEST_F(HandshakeAttacksTest, ASessionThatIsResumedWithoutItsSecret) {
  RawTlsClient first(coordinator_->path(), coordinator_->client());
  ASSERT_TRUE(first.Handshake()) << first.error();
  ASSERT_NE(first.Ask(framed_rpc::kPreface), "");
  ASSERT_EQ(SSL_SESSION_is_resumable(SSL_get0_session(first.session())), 1);
  // Early data could be replayed.
  EXPECT_EQ(SSL_SESSION_get_max_early_data(SSL_get0_session(first.session())), 0u);
  SSL_SESSION* const stolen = SSL_SESSION_dup(SSL_get0_session(first.session()));
  unsigned char secret[SSL_MAX_MASTER_KEY_LENGTH];
  const size_t size = SSL_SESSION_get_master_key(stolen, secret, sizeof(secret));
  secret[0] ^= 1;
  ASSERT_EQ(SSL_SESSION_set1_master_key(stolen, secret, size), 1);
  RawTlsClient second(coordinator_->path(), {});
  SSL_set_session(second.session(), stolen);
  SSL_SESSION_free(stolen);
  const bool connected = second.Handshake();
  EXPECT_EQ(connected ? second.Ask(framed_rpc::kPreface) : "", "");
}

TEST_F(HandshakeAttacksTest, PlainTextBehindAHalfHandshake) {
  const UniqueFd fd = ConnectBlocking(coordinator_->path());
  const std::string bytes = absl::StrCat(kRecordWithout, kHttp2Preface, std::string(600, 'x'));
  ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_TRUE(Closed(fd.get()));
}

TEST_F(HandshakeAttacksTest, HandshakesThatAreNeverFinished) {
  ListenerOptions options;
  options.preface_timeout = absl::Milliseconds(200);
  Start(options);
  std::vector<UniqueFd> halves;
  for (int i = 0; i < 50; ++i) {
    halves.push_back(ConnectBlocking(coordinator_->path()));
    ASSERT_EQ(send(halves.back().get(), kRecordWithout.data(), kRecordWithout.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(kRecordWithout.size()));
  }
  const absl::Status served = coordinator_->ServesGoodClient();
  EXPECT_TRUE(served.ok()) << served;
  for (const UniqueFd& half : halves) EXPECT_TRUE(Closed(half.get()));
}

// The time for handshakes is an hour here: the coordinator closes when the client does.
TEST_F(HandshakeAttacksTest, AClientThatLeavesWithinItsHandshake) {
  ListenerOptions options;
  options.preface_timeout = absl::Hours(1);
  Start(options);
  const UniqueFd half = ConnectBlocking(coordinator_->path());
  send(half.get(), kRecordWithout.data(), kRecordWithout.size(), MSG_NOSIGNAL);
  shutdown(half.get(), SHUT_WR);
  EXPECT_TRUE(Closed(half.get()));
}

TEST_F(HandshakeAttacksTest, UnfinishedHandshakesOnEachConnectionThatThePortHas) {
  ListenerOptions options = Patient();
  options.max_connections = 16;
  options.max_connections_per_peer = 16;
  Start(options);
  std::vector<UniqueFd> halves;
  for (int i = 0; i < 48; ++i) {
    halves.push_back(ConnectBlocking(coordinator_->path()));
    send(halves.back().get(), kRecordWithout.data(), kRecordWithout.size(), MSG_NOSIGNAL);
  }
  // The oldest ones make room: the first one is closed, although its time is not over.
  const absl::Status served = coordinator_->ServesGoodClient();
  EXPECT_TRUE(served.ok()) << served;
  EXPECT_TRUE(Closed(halves.front().get()));
}

TEST_F(HandshakeAttacksTest, AHandshakeThatComesByteByByteForEver) {
  ListenerOptions options;
  options.preface_timeout = absl::Milliseconds(200);
  Start(options);
  const UniqueFd slow = ConnectBlocking(coordinator_->path());
  const std::string bytes = absl::StrCat(kRecordWithout, std::string(500, 'x'));
  size_t sent = 0;
  pollfd closed{slow.get(), POLLIN | POLLRDHUP, 0};
  do {
    if (send(slow.get(), &bytes[sent], 1, MSG_NOSIGNAL) != 1) break;
  } while (++sent < bytes.size() && poll(&closed, 1, 20) == 0);
  EXPECT_LT(sent, bytes.size());
  EXPECT_TRUE(Closed(slow.get()));
}

}  // namespace
}  // namespace cohort::testing
