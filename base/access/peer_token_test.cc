// Connections of clients with signed tokens: the time, new keys, new policies, many tokens.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/access/testing/jwt_maker.h"
#include "base/access/token_hash.h"
#include "base/clock.h"
#include "base/rpc/client_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::JwksOf;
using testing::JwtKeyPair;

class PeerTokenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(keys_path_, JwksOf({key_.Jwk("first")}));
    WritePolicy("k8s");
    policy_ = *AccessPolicy::Load(policy_path_, [this] { return wall_; });
    peer_ = std::make_unique<PeerAccess>(policy_, std::vector<std::string>{"uid:0"});
  }
  static void WriteFile(const std::string& path, const std::string& text) {
    const std::string next = path + ".next";
    std::ofstream(next) << text;
    ASSERT_EQ(rename(next.c_str(), path.c_str()), 0);
  }
  // Trusts one issuer of this name; "": none. With `more_keys`, trusts another one with these keys.
  void WritePolicy(const std::string& name, const std::string& token_hash = "",
                   const std::string& more_keys = "") {
    json policy = {{"rules",
                    {{{"identity", "uid:0"}, {"tenant", "*"}, {"role", "operator"}},
                     {{"identity", "token:listed"}, {"tenant", "a"}, {"role", "observer"}},
                     {{"identity", "jwt:k8s:a:*"}, {"tenant", "a"}, {"role", "member"}}}},
                   {"tokens", json::array()},
                   {"issuers", json::array()}};
    if (!name.empty()) {
      policy["issuers"].push_back(
          {{"name", name}, {"issuer", "https://i"}, {"audience", "cohort"}, {"jwks", keys_path_}});
    }
    if (!more_keys.empty()) {
      policy["issuers"].push_back(
          {{"name", "more"}, {"issuer", "https://j"}, {"audience", "cohort"}, {"jwks", more_keys}});
    }
    if (!token_hash.empty()) {
      policy["tokens"].push_back({{"name", "listed"}, {"sha256", token_hash}});
    }
    WriteFile(policy_path_, policy.dump());
  }
  // Expires at the second `expires`.
  std::string Token(const std::string& subject, int64_t expires = 2000) const {
    return key_.Token("ES256", "first",
                      {{"iss", "https://i"},
                       {"aud", "cohort"},
                       {"sub", subject},
                       {"nbf", 500},
                       {"exp", expires}});
  }
  Role RoleOf(PeerAccess& access) { return access.Current(now_)->RoleIn("a"); }
  std::string IdentityOf(PeerAccess& access) { return *access.Current(now_)->identity; }
  void NextLook() { now_ += absl::Seconds(1); }

  const std::string folder_ = ::testing::TempDir();
  const std::string policy_path_ = folder_ + "/policy.json";
  const std::string keys_path_ = folder_ + "/keys.json";
  const JwtKeyPair key_ = JwtKeyPair::Ec("P-256");
  const JwtKeyPair next_key_ = JwtKeyPair::Ec("P-256");
  Instant now_ = absl::FromUnixSeconds(7);
  absl::Time wall_ = absl::FromUnixSeconds(1000);
  std::shared_ptr<AccessPolicy> policy_;
  std::unique_ptr<PeerAccess> peer_;
};

TEST_F(PeerTokenTest, ATokenCountsInPlaceOfNames) {
  const auto trainer = peer_->WithToken(Token("a:trainer"));
  EXPECT_EQ(IdentityOf(*trainer), "jwt:k8s:a:trainer");
  EXPECT_EQ(RoleOf(*trainer), Role::kMember);
  EXPECT_EQ(trainer->Current(now_)->RoleIn("b"), Role::kNone);
  const auto imitator = peer_->WithToken(Token("uid:0"));
  EXPECT_EQ(IdentityOf(*imitator), "jwt:k8s:uid:0");
  EXPECT_EQ(imitator->Current(now_)->HighestRole(), Role::kNone);
  const auto wrong = peer_->WithToken(Token("a:trainer") + "AAAA");
  EXPECT_EQ(IdentityOf(*wrong), "a client with a token with a wrong signature");
  EXPECT_EQ(wrong->Current(now_)->HighestRole(), Role::kNone);
  // A connection may show a token after another one.
  EXPECT_EQ(RoleOf(*wrong->WithToken(Token("a:trainer"))), Role::kMember);
}

TEST_F(PeerTokenTest, RightsEndWithTheToken) {
  const auto access = peer_->WithToken(Token("a:trainer"));
  EXPECT_EQ(RoleOf(*access), Role::kMember);
  wall_ = absl::FromUnixSeconds(2029);
  EXPECT_EQ(RoleOf(*access), Role::kMember);
  wall_ = absl::FromUnixSeconds(2030);
  EXPECT_EQ(RoleOf(*access), Role::kNone);
  EXPECT_EQ(IdentityOf(*access),
            "a client with a token of jwt:k8s:a:trainer that has expired at 1970-01-01T00:33:20Z");
  const auto renewed = peer_->WithToken(Token("a:trainer", 3000));
  EXPECT_EQ(RoleOf(*renewed), Role::kMember);
  const auto expired_at_first = peer_->WithToken(Token("a:reader"));
  EXPECT_THAT(IdentityOf(*expired_at_first), HasSubstr("jwt:k8s:a:reader that has expired at"));
}

TEST_F(PeerTokenTest, TheRightsOfAClientEndWithTheTokenOfTheServerThatCallsForIt) {
  const auto server = peer_->WithToken(Token("a:server"));
  const auto client = server->ForClient(EncodeClientNames({"uid:1000"}));
  EXPECT_EQ(RoleOf(*client), Role::kMember);
  wall_ = absl::FromUnixSeconds(2030);
  EXPECT_EQ(RoleOf(*client), Role::kNone);
}

TEST_F(PeerTokenTest, RightsBeginWithTheToken) {
  wall_ = absl::FromUnixSeconds(400);
  const auto access = peer_->WithToken(Token("a:trainer"));
  EXPECT_EQ(RoleOf(*access), Role::kNone);
  EXPECT_THAT(IdentityOf(*access), HasSubstr("that is not valid before 1970-01-01T00:08:20Z"));
  wall_ = absl::FromUnixSeconds(500);
  EXPECT_EQ(RoleOf(*access), Role::kMember);
}

TEST_F(PeerTokenTest, NewKeysCountFromTheNextLookOn) {
  const auto access = peer_->WithToken(Token("a:trainer"));
  EXPECT_EQ(RoleOf(*access), Role::kMember);
  WriteFile(keys_path_, JwksOf({next_key_.Jwk("second")}));
  EXPECT_EQ(RoleOf(*access), Role::kMember);  // a look a second
  NextLook();
  EXPECT_EQ(RoleOf(*access), Role::kNone);
  EXPECT_THAT(IdentityOf(*access),
              HasSubstr("signed with the key \"first\", which the issuer k8s does not have"));
  // Another key with the same id.
  WriteFile(keys_path_, JwksOf({next_key_.Jwk("first")}));
  NextLook();
  EXPECT_THAT(IdentityOf(*access), HasSubstr("with a wrong signature"));
  WriteFile(keys_path_, JwksOf({next_key_.Jwk("second"), key_.Jwk("first")}));
  NextLook();
  EXPECT_EQ(RoleOf(*access), Role::kMember);
}

TEST_F(PeerTokenTest, NewKeysOfEachIssuerCount) {
  const std::string more_keys = folder_ + "/more_keys.json";
  WriteFile(more_keys, JwksOf({next_key_.Jwk("other")}));
  WritePolicy("k8s", "", more_keys);
  NextLook();
  const auto access = peer_->WithToken(Token("a:trainer"));
  EXPECT_EQ(RoleOf(*access), Role::kMember);
  WriteFile(keys_path_, JwksOf({next_key_.Jwk("second")}));
  NextLook();
  EXPECT_EQ(RoleOf(*access), Role::kNone);
}

TEST_F(PeerTokenTest, AFileOfKeysThatCannotBeUsedChangesNothing) {
  const auto access = peer_->WithToken(Token("a:trainer"));
  for (const std::string& text :
       {std::string("{"), std::string("{}"), JwksOf({JwtKeyPair::Rsa(1024).Jwk("first")})}) {
    WriteFile(keys_path_, text);
    NextLook();
    EXPECT_EQ(RoleOf(*access), Role::kMember) << text;
  }
  ASSERT_EQ(unlink(keys_path_.c_str()), 0);
  NextLook();
  EXPECT_EQ(RoleOf(*access), Role::kMember);
  // It does not keep a new policy out either.
  WritePolicy("renamed");
  NextLook();
  EXPECT_EQ(IdentityOf(*access), "jwt:renamed:a:trainer");
  EXPECT_EQ(RoleOf(*access), Role::kNone);
  WriteFile(keys_path_, R"({"keys": []})");
  NextLook();
  EXPECT_THAT(IdentityOf(*access), HasSubstr("which the issuer renamed does not have"));
}

TEST_F(PeerTokenTest, ANewPolicyCountsFromTheNextLookOn) {
  const std::string token = Token("a:trainer");
  const auto access = peer_->WithToken(token);
  EXPECT_EQ(RoleOf(*access), Role::kMember);
  WritePolicy("");
  NextLook();
  EXPECT_EQ(IdentityOf(*access), "a client with an unknown token");
  EXPECT_EQ(RoleOf(*access), Role::kNone);
  // A token that the policy lists is one without signature, whatever it looks like.
  WritePolicy("k8s", absl::BytesToHexString(HashToken(token)));
  NextLook();
  EXPECT_EQ(IdentityOf(*access), "token:listed");
  wall_ = absl::FromUnixSeconds(5000);
  EXPECT_EQ(RoleOf(*access), Role::kObserver);
}

TEST_F(PeerTokenTest, ASignatureIsCheckedOnce) {
  const std::string token = Token("a:trainer");
  for (int i = 0; i < 100; ++i) {
    const auto access = peer_->WithToken(token);
    EXPECT_EQ(access, peer_->WithToken(token));
    EXPECT_EQ(RoleOf(*access), Role::kMember);
  }
  const std::string wrong = token + "AAAA";
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(IdentityOf(*peer_->WithToken(wrong)), HasSubstr("wrong signature"));
  }
}

TEST_F(PeerTokenTest, AConnectionChecksFewTokensASecond) {
  const auto first = peer_->WithToken(Token("a:trainer"));
  EXPECT_EQ(RoleOf(*first), Role::kMember);
  int checked = 1;
  while (IdentityOf(*peer_->WithToken(Token(absl::StrCat("a:", checked)))) ==
         absl::StrCat("jwt:k8s:a:", checked)) {
    ++checked;
  }
  EXPECT_EQ(checked, PeerAccess::kMaxSignatureChecks);
  const auto next = peer_->WithToken(Token("a:next"));
  EXPECT_EQ(IdentityOf(*next), "a client with too many different tokens");
  EXPECT_EQ(RoleOf(*next), Role::kNone);
  // Checked tokens and other connections go on.
  EXPECT_EQ(RoleOf(*first), Role::kMember);
  PeerAccess other(policy_, {"uid:1"});
  EXPECT_EQ(RoleOf(*other.WithToken(Token("a:next"))), Role::kMember);
  EXPECT_EQ(peer_->Current(now_)->RoleIn("a"), Role::kOperator);
  now_ += absl::Milliseconds(1000 / PeerAccess::kSignatureChecksPerSecond);
  EXPECT_EQ(RoleOf(*next), Role::kMember);
}

TEST_F(PeerTokenTest, TokensThatAreNotCheckedBringNoCheckEarlier) {
  for (int i = 0; i <= PeerAccess::kMaxSignatureChecks; ++i) {
    IdentityOf(*peer_->WithToken(Token(absl::StrCat("first:", i))));
  }
  int checked = 0;
  for (int i = 0; i < 10; ++i) {
    now_ += absl::Milliseconds(1000 / PeerAccess::kSignatureChecksPerSecond) / 10;
    const std::string subject = absl::StrCat("a:", i);
    if (IdentityOf(*peer_->WithToken(Token(subject))) == "jwt:k8s:" + subject) ++checked;
  }
  EXPECT_LE(checked, 1);
}

TEST_F(PeerTokenTest, AConnectionAndItsTokensHaveOnePauseAndALaterEndCounts) {
  const auto token = peer_->WithToken("token");
  EXPECT_FALSE(peer_->Pause().has_value());
  // The time has no fraction of a nanosecond.
  const Instant later =
      absl::FromUnixNanos(absl::ToUnixNanos(Clock::Steady().Now())) + absl::Hours(1);
  token->PauseReading(later);
  peer_->PauseReading(later - absl::Minutes(30));
  EXPECT_EQ(peer_->Pause(), later);
  EXPECT_EQ(token->Pause(), later);
}

TEST_F(PeerTokenTest, APauseEnds) {
  peer_->PauseReading(Clock::Steady().Now() - absl::Nanoseconds(1));
  EXPECT_FALSE(peer_->Pause().has_value());
  const Instant next =
      absl::FromUnixNanos(absl::ToUnixNanos(Clock::Steady().Now())) + absl::Hours(1);
  peer_->PauseReading(next);
  EXPECT_EQ(peer_->Pause(), next);
}

}  // namespace
}  // namespace cohort
