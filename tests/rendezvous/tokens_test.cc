// Clients with bearer tokens, of the policy's own list and signed ones.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/access/testing/jwt_maker.h"
#include "base/access/token_issuers.h"
#include "base/tls/testing/certificates.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/rendezvous/access_test_base.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {
namespace {

using cohort::testing::CoordinatorProcess;
using cohort::testing::JwksOf;
using cohort::testing::JwtKeyPair;
using nlohmann::json;
using ::testing::HasSubstr;

// A coordinator that takes clients with and without certificates, and knows the tokens "of-a" and
// "of-b". The policy has their SHA-256.
class TokenTest : public AccessTest {
 protected:
  void SetUp() override {
    const TlsFiles files = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    unsetenv("COHORT_TLS_CERTIFICATE");
    unsetenv("COHORT_TLS_KEY");
    setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
    WriteTokens(kHashOfA);
    CoordinatorProcess::Options options;
    options.flags = {"--tls-certificate", files.certificate, "--tls-key",
                     files.key,           "--tls-client-ca", files.ca,
                     "--access-policy",   policy_,           "--tls-client-certificate-optional"};
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  void TearDown() override { unsetenv("COHORT_TOKEN_FILE"); }

  // printf %s of-a | sha256sum
  static constexpr char kHashOfA[] =
      "2c91a1b46c699342c571f5fb5dc1d92703f8a8bb44b6ea29ddb8c1af6d11bd71";
  static constexpr char kHashOfB[] =
      "0b6704bffdb8a4495460f60684c91d61a35cede1c38423b7190c4ff9a379ca33";

  void WriteTokens(const std::string& hash_of_a) {
    std::ofstream(policy_ + ".next") << absl::StrCat(
        R"({"rules": [
            {"identity": "token:*", "tenant": "a", "role": "member"},
            {"identity": "spiffe://test/*", "tenant": "a", "role": "member"}], "tokens": [
            {"name": "trainer", "sha256": ")",
        hash_of_a, R"("}, {"name": "reader", "sha256": ")", kHashOfB, R"("}]})");
    ASSERT_EQ(rename((policy_ + ".next").c_str(), policy_.c_str()), 0);
  }
  // Connections made from now on show this token.
  void Show(const std::string& token) {
    const std::string path = absl::StrCat(folder_, "/token-", token);
    std::ofstream(path) << token << "\n";
    setenv("COHORT_TOKEN_FILE", path.c_str(), 1);
  }
  std::unique_ptr<StoreClient> Store() {
    const auto connection = Connection::Create(Options("a"));
    EXPECT_TRUE(connection.ok()) << connection.status();
    return StoreClient::Create(*connection, "");
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, TokenTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

TEST_P(TokenTest, ATokenIsAnIdentity) {
  ExpectDenied(Store()->Put("key", "x").status(), "and anonymous-tls has no role there");
  Show("of-c");
  ExpectDenied(Store()->Put("key", "x").status(), "and a client with an unknown token has no role");
  Show("of-a");
  const auto store = Store();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Put("key", "value").ok());
  ProcessGroupOptions options;
  options.connection = Options("a");
  options.group = "g";
  options.member = "m0";
  options.world_size = 1;
  options.join_timeout = options.timeout = kLong;
  const auto group = ProcessGroup::Create(options);
  ASSERT_TRUE(group.ok()) << group.status();
  Show("of-b");
  EXPECT_TRUE(Store()->Put("key", "value").ok());
  ExpectDenied(ProcessGroup::Create(options).status(),
               "member m0 of group g belongs to token:trainer, not to token:reader");
  EXPECT_TRUE((*group)->Barrier().ok());
  // Certificates go on to work, and a token counts in place of one.
  Become("trainer");
  ExpectDenied(ProcessGroup::Create(options).status(), "not to token:reader");
  unsetenv("COHORT_TOKEN_FILE");
  ExpectDenied(ProcessGroup::Create(options).status(), "not to spiffe://test/trainer");
  // The policy forgets the first token.
  WriteTokens(std::string(64, '0'));
  EXPECT_TRUE(
      Eventually([&] { return absl::IsPermissionDenied(store->Put("key", "x").status()); }));
}

TEST_P(TokenTest, ATokenIsNotSentWithoutTls) {
  Show("of-a");
  unsetenv("COHORT_TLS_CA");
  const auto connection = Connection::Create(Options("a"));
  EXPECT_EQ(connection.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(connection.status().message()),
              HasSubstr("token-of-a: a token is sent over TLS alone: expected COHORT_TLS_CA"));
}

// A coordinator that trusts the tokens of one issuer, and has its keys in a file.
class SignedTokenTest : public TokenTest {
 protected:
  void SetUp() override {
    WriteKeys({key_.Jwk("first")});
    TokenTest::SetUp();
    const json rule = {{"identity", "jwt:k8s:system:serviceaccount:team-a:*"},
                       {"tenant", "a"},
                       {"role", "member"}};
    const json issuer = {
        {"name", "k8s"}, {"issuer", kIssuer}, {"audience", "cohort"}, {"jwks", keys_}};
    const json policy = {{"rules", json::array({rule})}, {"issuers", json::array({issuer})}};
    std::ofstream(policy_ + ".next") << policy.dump();
    ASSERT_EQ(rename((policy_ + ".next").c_str(), policy_.c_str()), 0);
    ShowTrainer(absl::Hours(1));
    const auto store = Store();
    ASSERT_TRUE(Eventually([&] { return store->Put("key", "value").ok(); }));
  }

  static constexpr char kIssuer[] = "https://kubernetes.default.svc";

  void WriteKeys(const std::vector<json>& keys) {
    std::ofstream(keys_ + ".next") << JwksOf(keys);
    ASSERT_EQ(rename((keys_ + ".next").c_str(), keys_.c_str()), 0);
  }
  std::string Token(const std::string& subject, absl::Duration lifetime) const {
    return key_.Token("ES256", "first",
                      {{"iss", kIssuer},
                       {"aud", {"cohort"}},
                       {"sub", "system:serviceaccount:" + subject},
                       {"exp", absl::ToUnixSeconds(absl::Now() + lifetime)}});
  }
  // As Kubernetes replaces a token before it expires.
  void ReplaceToken(const std::string& token) {
    const std::string path = folder_ + "/token";
    std::ofstream(path + ".next") << token;
    ASSERT_EQ(rename((path + ".next").c_str(), path.c_str()), 0);
    setenv("COHORT_TOKEN_FILE", path.c_str(), 1);
  }
  void ShowTrainer(absl::Duration lifetime) { ReplaceToken(Token("team-a:trainer", lifetime)); }

  const std::string keys_ = folder_ + "/keys.json";
  const JwtKeyPair key_ = JwtKeyPair::Ec("P-256");
};

INSTANTIATE_TEST_SUITE_P(Ways, SignedTokenTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

TEST_P(SignedTokenTest, ASubjectIsAnIdentity) {
  ProcessGroupOptions options;
  options.connection = Options("a");
  options.group = "g";
  options.member = "m0";
  options.world_size = 1;
  options.join_timeout = options.timeout = kLong;
  const auto group = ProcessGroup::Create(options);
  ASSERT_TRUE(group.ok()) << group.status();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE((*group)->Barrier().ok());
  const std::string thief = folder_ + "/thief";
  std::ofstream(thief) << Token("team-a:thief", absl::Hours(1));
  setenv("COHORT_TOKEN_FILE", thief.c_str(), 1);
  ExpectDenied(ProcessGroup::Create(options).status(),
               "belongs to jwt:k8s:system:serviceaccount:team-a:trainer, "
               "not to jwt:k8s:system:serviceaccount:team-a:thief");
  const std::string other_team = folder_ + "/other-team";
  std::ofstream(other_team) << Token("team-b:trainer", absl::Hours(1));
  setenv("COHORT_TOKEN_FILE", other_team.c_str(), 1);
  ExpectDenied(Store()->Put("key", "x").status(),
               "and jwt:k8s:system:serviceaccount:team-b:trainer has no role there");
}

TEST_P(SignedTokenTest, ANewKeyTakesThePlaceOfAnOldOne) {
  const auto store = Store();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Put("key", "value").ok());
  WriteKeys({JwtKeyPair::Ec("P-256").Jwk("second")});
  absl::Status denied;
  ASSERT_TRUE(Eventually([&] { return !(denied = store->Put("key", "x").status()).ok(); }));
  ExpectDenied(denied, "signed with the key \"first\", which the issuer k8s does not have");
}

TEST_P(SignedTokenTest, AnOpenConnectionNeedsANewTokenInTime) {
  const auto store = Store();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Put("key", "value").ok());
  ShowTrainer(-absl::Minutes(1));
  absl::Status denied;
  ASSERT_TRUE(Eventually([&] { return !(denied = store->Put("key", "x").status()).ok(); }));
  ExpectDenied(denied, "jwt:k8s:system:serviceaccount:team-a:trainer that has expired at ");
  ShowTrainer(absl::Hours(1));
  EXPECT_TRUE(Eventually([&] { return store->Put("key", "x").ok(); }));
}

TEST_P(SignedTokenTest, AWaitAndAWatchEndWithTheToken) {
  // A file of its own: the process looks at the other one once a second.
  const std::string brief = folder_ + "/brief-token";
  std::ofstream(brief) << Token("team-a:trainer", absl::Seconds(5) - kTokenLeeway);
  setenv("COHORT_TOKEN_FILE", brief.c_str(), 1);
  const auto store = Store();
  ASSERT_TRUE(store->Put("key", "value").ok());
  absl::Status got;
  absl::Status watched;
  std::thread get([&] { got = store->Get({"absent"}, kLong).status(); });
  std::thread watch([&] {
    watched = store->Watch(
        "", 0, [](const KeyEvent&) { return true; }, kLong);
  });
  get.join();
  watch.join();
  constexpr char kExpired[] = "jwt:k8s:system:serviceaccount:team-a:trainer that has expired at ";
  ExpectDenied(got, kExpired);
  ExpectDenied(watched, kExpired);
}

}  // namespace
}  // namespace cohort::client
