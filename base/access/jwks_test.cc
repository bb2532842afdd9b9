#include "base/access/jwks.h"

#include <openssl/evp.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/access/jwt_signature.h"
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

const JwtKeyPair& Rsa() {
  static const auto* const kKey = new JwtKeyPair(JwtKeyPair::Rsa());
  return *kKey;
}

std::string Fault(const std::string& text) {
  const absl::StatusOr<Jwks> keys = Jwks::Parse(text);
  return keys.ok() ? "" : std::string(keys.status().message());
}

// The fault of a set with a good key and, behind it, `key` with one field changed; a null value
// removes the field.
std::string FaultWith(json key, const std::string& name, const json& value) {
  value.is_null() ? static_cast<void>(key.erase(name)) : static_cast<void>(key[name] = value);
  return Fault(JwksOf({Rsa().Jwk("good"), std::move(key)}));
}

TEST(JwksTest, KeysAreFoundByTheirId) {
  const auto keys = Jwks::Parse(
      JwksOf({Rsa().Jwk("a"), JwtKeyPair::Ec("P-256").Jwk("b"), JwtKeyPair::Ec("P-384").Jwk("c")}));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(EVP_PKEY_get_bits(keys->Find("a")->key.get()), 2048);
  EXPECT_EQ(EVP_PKEY_get_bits(keys->Find("b")->key.get()), 256);
  EXPECT_EQ(EVP_PKEY_get_bits(keys->Find("c")->key.get()), 384);
  EXPECT_EQ(keys->Find("d"), nullptr);
  EXPECT_EQ(keys->Find(""), nullptr);
}

TEST(JwksTest, ASetMayBeEmpty) { EXPECT_EQ(Fault(R"({"keys": []})"), ""); }

TEST(JwksTest, KeysForOtherUsesAreLeftOut) {
  json encrypts = Rsa().Jwk("encrypts");
  encrypts["use"] = "enc";
  json wraps = Rsa().Jwk("wraps");
  wraps["alg"] = "RSA-OAEP";
  json signs = Rsa().Jwk("signs");
  signs["key_ops"] = {"sign"};
  json curve = JwtKeyPair::Ec("P-256").Jwk("curve");
  curve["crv"] = "secp256k1";
  const json secret = {{"kty", "oct"}, {"kid", "secret"}, {"alg", "HS256"}, {"k", "AAAA"}};
  const json edwards = {{"kty", "OKP"}, {"kid", "edwards"}, {"crv", "Ed25519"}, {"x", "AAAA"}};
  const auto keys =
      Jwks::Parse(JwksOf({encrypts, wraps, signs, curve, secret, edwards, Rsa().Jwk("good")}));
  ASSERT_TRUE(keys.ok()) << keys.status();
  for (const char* const id : {"encrypts", "wraps", "signs", "curve", "secret", "edwards"}) {
    EXPECT_EQ(keys->Find(id), nullptr) << id;
  }
  EXPECT_NE(keys->Find("good"), nullptr);
}

TEST(JwksTest, WrongSetsAreNamedWithTheReason) {
  EXPECT_THAT(Fault("{"), HasSubstr("is not JSON"));
  EXPECT_THAT(Fault("{}"), HasSubstr("has no list \"keys\""));
  EXPECT_THAT(Fault(R"({"keys": [1]})"), HasSubstr("key 1: is not an object"));
  EXPECT_THAT(Fault(JwksOf(std::vector<json>(101, json::object()))), HasSubstr("more than 100"));
  const json rsa = Rsa().Jwk("rsa");
  EXPECT_THAT(FaultWith(rsa, "kid", nullptr), HasSubstr("key 2: has no kid"));
  EXPECT_THAT(FaultWith(rsa, "kid", 5), HasSubstr("key 2: has no kid"));
  EXPECT_THAT(FaultWith(rsa, "kid", "good"), HasSubstr("key 2: has the kid of another key"));
  EXPECT_THAT(FaultWith(rsa, "kid", std::string(257, 'a')), HasSubstr("256 bytes"));
  EXPECT_THAT(FaultWith(rsa, "d", "AQAB"), HasSubstr("key 2: is a private key"));
  EXPECT_THAT(FaultWith(rsa, "n", nullptr), HasSubstr("key 2: an RSA key needs n and e"));
  EXPECT_THAT(FaultWith(rsa, "e", "A QAB"), HasSubstr("key 2: an RSA key needs n and e"));
  EXPECT_THAT(FaultWith(rsa, "e", "AQ"), HasSubstr("is not a valid RSA key"));
  EXPECT_THAT(FaultWith(rsa, "e", std::string(100, 'B')), HasSubstr("e at most 64"));
  EXPECT_THAT(FaultWith(rsa, "n", std::string(1368, 'B')), HasSubstr("at most 8192 bits"));
  EXPECT_THAT(FaultWith(rsa, "alg", "ES256"), HasSubstr("does not sign with ES256"));
  EXPECT_THAT(Fault(JwksOf({JwtKeyPair::Rsa(1024).Jwk("short")})),
              HasSubstr("key 1: has 1024 bits; an RSA key needs at least 2048"));
}

TEST(JwksTest, APointHasToBeOnItsCurve) {
  const json key = JwtKeyPair::Ec("P-256").Jwk("ec");
  EXPECT_EQ(FaultWith(key, "alg", "ES256"), "");
  EXPECT_THAT(FaultWith(key, "alg", "ES384"), HasSubstr("does not sign with ES384"));
  EXPECT_THAT(FaultWith(key, "y", key["x"]), HasSubstr("is not a point of its curve"));
  EXPECT_THAT(FaultWith(key, "x", std::string(43, 'A')), HasSubstr("is not a point"));
  EXPECT_THAT(FaultWith(key, "x", "AAAA"), HasSubstr("needs x and y of 32 bytes"));
  EXPECT_THAT(FaultWith(key, "crv", "P-384"), HasSubstr("needs x and y of 48 bytes"));
}

TEST(JwtSignatureTest, ZerosAreNoSignature) {
  for (const char* const algorithm : {"ES256", "ES384"}) {
    const bool short_curve = algorithm == std::string("ES256");
    const size_t half = short_curve ? 32 : 48;
    const auto keys =
        Jwks::Parse(JwksOf({JwtKeyPair::Ec(short_curve ? "P-256" : "P-384").Jwk("key")}));
    ASSERT_TRUE(keys.ok()) << keys.status();
    EVP_PKEY* const key = keys->Find("key")->key.get();
    const std::string zero(half, '\0');
    const std::string one = std::string(half - 1, '\0') + '\1';
    const std::string most(half, '\xff');
    for (const std::string& signature : {zero + zero, zero + one, one + zero, one + one,
                                         most + most, std::string(), zero + zero + zero, one}) {
      EXPECT_FALSE(VerifyJwtSignature(algorithm, key, "text", signature));
    }
  }
}

TEST(JwtSignatureTest, AKeyVerifiesItsAlgorithmsAlone) {
  const auto keys = Jwks::Parse(JwksOf(
      {Rsa().Jwk("rsa"), JwtKeyPair::Ec("P-256").Jwk("256"), JwtKeyPair::Ec("P-384").Jwk("384")}));
  ASSERT_TRUE(keys.ok()) << keys.status();
  for (const char* const algorithm : {"RS256", "RS384", "RS512", "PS256", "ES256", "ES384"}) {
    EXPECT_TRUE(IsJwtAlgorithm(algorithm));
    EXPECT_EQ(MayVerify(algorithm, keys->Find("rsa")->key.get()),
              algorithm[1] == 'S' && algorithm[0] != 'E');
    EXPECT_EQ(MayVerify(algorithm, keys->Find("256")->key.get()),
              algorithm == std::string("ES256"));
    EXPECT_EQ(MayVerify(algorithm, keys->Find("384")->key.get()),
              algorithm == std::string("ES384"));
  }
  for (const char* const algorithm : {"", "none", "None", "HS256", "rs256", "ES512", "EdDSA"}) {
    EXPECT_FALSE(IsJwtAlgorithm(algorithm)) << algorithm;
    EXPECT_FALSE(MayVerify(algorithm, keys->Find("rsa")->key.get())) << algorithm;
  }
}

}  // namespace
}  // namespace cohort
