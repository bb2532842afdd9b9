// Signed tokens, good ones and those of attackers.
#include "base/access/token_issuers.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/access/base64url.h"
#include "base/access/jwt.h"
#include "base/access/testing/jwt_maker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::JwksOf;
using testing::JwtKeyPair;
using ::testing::Not;
using ::testing::StartsWith;
using testing::UnsignedToken;

constexpr char kIssuer[] = "https://kubernetes.default.svc";

struct Keys {
  JwtKeyPair rsa = JwtKeyPair::Rsa();
  JwtKeyPair p256 = JwtKeyPair::Ec("P-256");
  JwtKeyPair p384 = JwtKeyPair::Ec("P-384");
  JwtKeyPair stranger = JwtKeyPair::Rsa();
};
const Keys& AllKeys() {
  static const auto* const kKeys = new Keys;
  return *kKeys;
}

class TokenIssuersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteKeys({keys_.rsa.Jwk("rsa"), keys_.p256.Jwk("p256"), keys_.p384.Jwk("p384")});
    issuers_ = *ReadTokenIssuers(json::array({Entry()}), {});
  }
  void WriteKeys(const std::vector<json>& keys) {
    std::ofstream(path_ + ".next") << JwksOf(keys);
    ASSERT_EQ(rename((path_ + ".next").c_str(), path_.c_str()), 0);
  }
  json Entry() const {
    return {{"name", "k8s"}, {"issuer", kIssuer}, {"audience", "cohort"}, {"jwks", path_}};
  }
  std::string EntryFault(const std::vector<json>& entries) {
    const auto read = ReadTokenIssuers(json(entries), {});
    return read.ok() ? "" : std::string(read.status().message());
  }
  static json Claims() {
    return {{"iss", kIssuer},
            {"aud", {"cohort"}},
            {"exp", 2000},
            {"nbf", 1000},
            {"sub", "system:serviceaccount:team-a:trainer"}};
  }
  static json With(const std::string& name, const json& value) {
    json claims = Claims();
    claims[name] = value;
    return claims;
  }
  static json Without(const std::string& name) {
    json claims = Claims();
    claims.erase(name);
    return claims;
  }
  // The reason for which the token is refused; "" if it is not.
  std::string Fault(const std::string& token) {
    const auto identity = VerifyJwt(token, issuers_);
    if (identity.ok()) return "";
    EXPECT_EQ(identity.status().code(), absl::StatusCode::kInvalidArgument);
    // The reason shows neither the payload nor the signature.
    const std::vector<std::string> parts = absl::StrSplit(token, '.');
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].size() < 8) continue;
      EXPECT_THAT(std::string(identity.status().message()), Not(HasSubstr(parts[i].substr(0, 8))));
    }
    return std::string(identity.status().message());
  }
  std::string FaultOf(const json& claims) { return Fault(keys_.rsa.Token("RS256", "rsa", claims)); }
  std::string NameOf(const json& claims) {
    const auto identity = VerifyJwt(keys_.rsa.Token("RS256", "rsa", claims), issuers_);
    return identity.ok() ? identity->name : identity.status().ToString();
  }

  const Keys& keys_ = AllKeys();
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/jwks.json");
  std::vector<TokenIssuer> issuers_;
};

TEST_F(TokenIssuersTest, EachAlgorithmVerifies) {
  const std::vector<std::pair<const char*, const char*>> algorithms = {
      {"RS256", "rsa"}, {"RS384", "rsa"},  {"RS512", "rsa"},
      {"PS256", "rsa"}, {"ES256", "p256"}, {"ES384", "p384"}};
  for (const auto& [algorithm, kid] : algorithms) {
    const JwtKeyPair& key = kid == std::string("rsa")    ? keys_.rsa
                            : kid == std::string("p256") ? keys_.p256
                                                         : keys_.p384;
    const auto identity = VerifyJwt(key.Token(algorithm, kid, Claims()), issuers_);
    ASSERT_TRUE(identity.ok()) << algorithm << identity.status();
    EXPECT_EQ(identity->name, "jwt:k8s:system:serviceaccount:team-a:trainer");
    EXPECT_EQ(identity->begins, absl::FromUnixSeconds(1000));
    EXPECT_EQ(identity->expires, absl::FromUnixSeconds(2000));
  }
}

TEST_F(TokenIssuersTest, TheTimeOfTheDayCounts) {
  const auto identity = VerifyJwt(keys_.p256.Token("ES256", "p256", Claims()), issuers_);
  ASSERT_TRUE(identity.ok()) << identity.status();
  const auto fault = [&](int64_t second) {
    return std::string(identity->CheckTime(absl::FromUnixSeconds(second)).message());
  };
  EXPECT_EQ(fault(970), "");
  EXPECT_EQ(fault(2029), "");
  EXPECT_THAT(fault(969), HasSubstr("that is not valid before 1970-01-01T00:16:40Z"));
  EXPECT_THAT(fault(2030), HasSubstr("that has expired at 1970-01-01T00:33:20Z"));
  EXPECT_THAT(fault(2030), HasSubstr("of jwt:k8s:system:serviceaccount:team-a:trainer"));
}

TEST_F(TokenIssuersTest, AlgorithmsWithoutAPublicKeyAreRefused) {
  for (const char* const name : {"none", "None", "nOnE", ""}) {
    const std::string header = absl::StrCat(R"({"alg": ")", name, R"(", "kid": "rsa"})");
    const std::string text = UnsignedToken(header, Claims().dump());
    EXPECT_THAT(Fault(text + "."), HasSubstr("with the algorithm \"" + std::string(name)));
    EXPECT_THAT(Fault(text + ".AAAA"), HasSubstr("expected RS256, RS384"));
  }
  const std::string without = UnsignedToken(R"({"kid": "rsa"})", Claims().dump());
  EXPECT_THAT(Fault(without + ".AAAA"), HasSubstr("with the algorithm \"\""));
  // The public key as the shared secret.
  const std::string text = UnsignedToken(R"({"alg": "HS256", "kid": "rsa"})", Claims().dump());
  const std::string pem = keys_.rsa.Pem();
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), pem.data(), static_cast<int>(pem.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac, &size);
  const std::string signature(reinterpret_cast<const char*>(mac), size);
  EXPECT_THAT(Fault(absl::StrCat(text, ".", EncodeBase64Url(signature))),
              HasSubstr("with the algorithm \"HS256\""));
}

TEST_F(TokenIssuersTest, TheKeyHasToBeTheIssuersOwn) {
  EXPECT_THAT(Fault(keys_.rsa.Token("RS256", "other", Claims())),
              HasSubstr("signed with the key \"other\", which the issuer k8s does not have"));
  EXPECT_EQ(Fault(keys_.rsa.TokenOf("RS256", R"({"alg": "RS256"})", Claims().dump())),
            "without the id of a key (kid)");
  EXPECT_THAT(Fault(keys_.rsa.Token("RS256", "p256", Claims())),
              HasSubstr("with the algorithm RS256, for which the key \"p256\" is not made"));
  EXPECT_THAT(Fault(keys_.p256.Token("ES256", "rsa", Claims())), HasSubstr("is not made"));
  EXPECT_THAT(Fault(keys_.p256.Token("ES256", "p384", Claims())), HasSubstr("is not made"));
  EXPECT_EQ(Fault(keys_.stranger.Token("RS256", "rsa", Claims())), "with a wrong signature");
  // A key that the token brings along does not count.
  json header = {{"alg", "RS256"}, {"kid", "rsa"}, {"jwk", keys_.stranger.Jwk("rsa")}};
  EXPECT_EQ(Fault(keys_.stranger.TokenOf("RS256", header.dump(), Claims().dump())),
            "with a wrong signature");
  // The set of keys may bind a key to an algorithm.
  json bound = keys_.rsa.Jwk("rsa");
  bound["alg"] = "PS256";
  WriteKeys({bound});
  EXPECT_TRUE(issuers_[0].keys->LookAgain());
  EXPECT_EQ(Fault(keys_.rsa.Token("PS256", "rsa", Claims())), "");
  EXPECT_THAT(Fault(keys_.rsa.Token("RS256", "rsa", Claims())), HasSubstr("is not made"));
}

TEST_F(TokenIssuersTest, AChangedTokenIsRefused) {
  for (const auto& [key, algorithm, kid] :
       {std::tuple(&keys_.rsa, "RS256", "rsa"), std::tuple(&keys_.rsa, "PS256", "rsa"),
        std::tuple(&keys_.p256, "ES256", "p256"), std::tuple(&keys_.p384, "ES384", "p384")}) {
    const std::vector<std::string> good = absl::StrSplit(key->Token(algorithm, kid, Claims()), '.');
    const std::vector<std::string> other =
        absl::StrSplit(key->Token(algorithm, kid, With("sub", "admin")), '.');
    EXPECT_EQ(Fault(absl::StrCat(good[0], ".", other[1], ".", good[2])), "with a wrong signature");
    EXPECT_EQ(Fault(absl::StrCat(good[0], ".", good[1], ".", other[2])), "with a wrong signature");
    std::string bytes = *DecodeBase64Url(good[2]);
    for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      EXPECT_EQ(Fault(absl::StrCat(good[0], ".", good[1], ".", EncodeBase64Url(changed))),
                "with a wrong signature");
    }
    const std::string none = absl::StrCat(good[0], ".", good[1], ".");
    EXPECT_EQ(Fault(none), "without a signature");
    for (const std::string& wrong :
         {bytes + '\0', bytes.substr(1), std::string(bytes.size(), '\0'), std::string("x")}) {
      EXPECT_EQ(Fault(none + EncodeBase64Url(wrong)), "with a wrong signature");
    }
  }
}

TEST_F(TokenIssuersTest, IssuerAndAudienceHaveToMatch) {
  EXPECT_THAT(
      FaultOf(With("iss", "https://evil.example")),
      HasSubstr("of the issuer \"https://evil.example\", which the access policy does not"));
  EXPECT_THAT(FaultOf(With("iss", std::string(kIssuer) + "/")), HasSubstr("of the issuer"));
  EXPECT_EQ(FaultOf(Without("iss")), "without an issuer (iss)");
  EXPECT_EQ(FaultOf(With("iss", json::array({kIssuer}))), "without an issuer (iss)");
  EXPECT_EQ(FaultOf(With("aud", "cohort")), "");
  EXPECT_EQ(FaultOf(With("aud", {"other", "cohort"})), "");
  for (const json& audience : {json("other"), json("cohort2"), json("Cohort"), json(""),
                               json::array(), json({"a", "b"})}) {
    EXPECT_EQ(FaultOf(With("aud", audience)), "for another audience than \"cohort\"");
  }
  EXPECT_EQ(FaultOf(Without("aud")), "without an audience (aud)");
  EXPECT_THAT(FaultOf(With("aud", 5)), HasSubstr("is no text and no list"));
  EXPECT_THAT(FaultOf(With("aud", {"cohort", 5})), HasSubstr("is not of texts"));
}

TEST_F(TokenIssuersTest, DatesAreNumbers) {
  EXPECT_EQ(FaultOf(Without("exp")), "without an expiry (exp)");
  EXPECT_EQ(FaultOf(Without("nbf")), "");
  EXPECT_EQ(FaultOf(With("exp", 2000.5)), "");
  for (const json& date : {json("2000"), json(true), json(nullptr), json(-1), json(1e18),
                           json(18446744073709551615u), json(253402300800), json::array({2000})}) {
    EXPECT_EQ(FaultOf(With("exp", date)), "whose expiry (exp) is not a date") << date;
    EXPECT_EQ(FaultOf(With("nbf", date)), "whose begin (nbf) is not a date") << date;
  }
}

TEST_F(TokenIssuersTest, ASubjectImitatesNoOtherName) {
  for (const char* const subject : {"uid:0", "token:ci", "spiffe://prod/ns/a/sa/x", "dns:a", "cn:a",
                                    "anonymous", "*", "jwt:other:admin", "k8s", ":"}) {
    EXPECT_EQ(NameOf(With("sub", subject)), absl::StrCat("jwt:k8s:", subject));
  }
  EXPECT_EQ(FaultOf(Without("sub")), "without a subject (sub)");
  EXPECT_EQ(FaultOf(With("sub", "")), "without a subject (sub)");
  EXPECT_EQ(FaultOf(With("sub", 0)), "without a subject (sub)");
  EXPECT_THAT(FaultOf(With("sub", "a\nb")), HasSubstr("control character"));
  EXPECT_THAT(FaultOf(With("sub", std::string("a\0b", 3))), HasSubstr("control character"));
  EXPECT_THAT(FaultOf(With("sub", std::string(2041, 'a'))), HasSubstr("more than 2048 bytes"));
  EXPECT_EQ(FaultOf(With("sub", std::string(2040, 'a'))), "");
}

TEST_F(TokenIssuersTest, BrokenTextsAreRefused) {
  const auto of = [&](const std::string& header, const std::string& payload) {
    return Fault(keys_.rsa.TokenOf("RS256", header, payload));
  };
  const std::string header = R"({"alg": "RS256", "kid": "rsa"})";
  const std::string claims = Claims().dump();
  EXPECT_EQ(of(header, claims), "");
  EXPECT_EQ(of("[]", claims), "whose header is not an object");
  EXPECT_EQ(of("x", claims), "whose header is not JSON");
  EXPECT_EQ(of(header, "x"), "whose payload is not JSON");
  EXPECT_EQ(of(header, "null"), "whose payload is not an object");
  EXPECT_EQ(of(R"({"alg": "none", "alg": "RS256", "kid": "rsa"})", claims),
            "whose header has a key twice");
  EXPECT_EQ(of(header, R"({"sub": "a", )" + claims.substr(1)), "whose payload has a key twice");
  EXPECT_EQ(of(header, R"({"a": )" + std::string(1000, '[') + std::string(1000, ']') + "}"),
            "whose payload has more than 16 levels");
  EXPECT_EQ(of(header, std::string(2000, '[')), "whose payload has more than 16 levels");
  EXPECT_EQ(of(std::string(2000, '['), claims), "whose header has more than 16 levels");
  EXPECT_THAT(of(R"({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false})", claims),
              StartsWith("with extensions (crit)"));
  const std::string good = keys_.rsa.TokenOf("RS256", header, claims);
  for (const char* const extra : {"=", " ", "\n", "+", "/", "A"}) {
    EXPECT_EQ(Fault(extra + good).empty(), false) << extra;
    EXPECT_EQ(Fault(good + extra).empty(), false) << extra;
  }
  EXPECT_EQ(Fault("!!.!!.!!"), "whose header is not base64url");
  EXPECT_EQ(Fault(".."), "whose header is not JSON");
  EXPECT_EQ(Fault(good + ".x"), "that is no JSON Web Token");
  EXPECT_EQ(Fault(std::string(4096, 'A') + good), "of more than 4096 bytes");
}

TEST_F(TokenIssuersTest, AJwtHasTwoDots) {
  EXPECT_TRUE(LooksLikeJwt("a.b.c"));
  for (const char* const token : {"", "abc", "a.b", "a.b.c.d"}) EXPECT_FALSE(LooksLikeJwt(token));
}

TEST_F(TokenIssuersTest, WrongEntriesAreNamedWithTheReason) {
  const auto fault = [&](const std::string& name, const json& value) {
    json entry = Entry();
    value.is_null() ? static_cast<void>(entry.erase(name)) : static_cast<void>(entry[name] = value);
    return EntryFault({entry});
  };
  EXPECT_THAT(fault("name", nullptr), HasSubstr("issuer 1: name must have 1 to 64 letters"));
  for (const char* const name : {"", "a:b", "a*", "a b", "\n"}) {
    EXPECT_THAT(fault("name", name), HasSubstr("issuer 1: name must have")) << name;
  }
  EXPECT_THAT(fault("name", std::string(65, 'a')), HasSubstr("name must have"));
  EXPECT_THAT(fault("issuer", nullptr), HasSubstr("issuer must be"));
  EXPECT_THAT(fault("audience", ""), HasSubstr("audience must be"));
  EXPECT_THAT(fault("jwks", nullptr), HasSubstr("jwks must be the path"));
  EXPECT_THAT(fault("jwks", "/none.json"), HasSubstr("JWKS file /none.json: No such file"));
  EXPECT_THAT(fault("jwks", "/dev/zero"), HasSubstr("/dev/zero: is not a regular file"));
  EXPECT_THAT(fault("leeway", 5), HasSubstr("has no field leeway"));
  json other = Entry();
  other["issuer"] = "https://other.example";
  EXPECT_THAT(EntryFault({Entry(), other}), HasSubstr("issuer 2: has the name of another issuer"));
  other["name"] = "other";
  EXPECT_EQ(EntryFault({Entry(), other}), "");
  other["issuer"] = kIssuer;
  EXPECT_THAT(EntryFault({Entry(), other}), HasSubstr("issuer 2: has the issuer of another entry"));
  EXPECT_THAT(std::string(ReadTokenIssuers(json::object(), {}).status().message()),
              HasSubstr("\"issuers\" must be a list of at most 16"));
}

// Two issuers with keys of the same id.
TEST_F(TokenIssuersTest, AnIssuerDoesNotSignForAnother) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/other.json");
  std::ofstream(path) << JwksOf({keys_.stranger.Jwk("rsa")});
  json other = Entry();
  other["name"] = "other";
  other["issuer"] = "https://other.example";
  other["jwks"] = path;
  issuers_ = *ReadTokenIssuers(json::array({Entry(), other}), {});
  const json claims = With("iss", "https://other.example");
  EXPECT_EQ(VerifyJwt(keys_.stranger.Token("RS256", "rsa", claims), issuers_)->name,
            "jwt:other:system:serviceaccount:team-a:trainer");
  EXPECT_EQ(Fault(keys_.stranger.Token("RS256", "rsa", Claims())), "with a wrong signature");
  EXPECT_EQ(FaultOf(claims), "with a wrong signature");
}

}  // namespace
}  // namespace cohort
