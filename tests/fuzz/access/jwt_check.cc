#include "tests/fuzz/access/jwt_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/jwks.h"
#include "base/access/jwt_signature.h"
#include "base/access/testing/jwt_maker.h"
#include "base/access/token_issuers.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort::fuzz {
namespace {

using cohort::testing::JwksOf;
using cohort::testing::JwtKeyPair;
using nlohmann::json;

enum Kind { kSigned, kToken, kKeys, kKindCount };

constexpr char kKeyId[] = "rsa";
constexpr char kIssuer[] = "https://issuer.example";
constexpr char kAudience[] = "cohort";
constexpr char kHeader[] = R"({"alg": "RS256", "kid": "rsa"})";
constexpr char kClaims[] =
    R"({"iss": "https://issuer.example", "aud": ["other", "cohort"], "exp": 4000000000, "nbf": 0, "sub": "pod"})";

absl::Status Violation(absl::string_view what) { return absl::InternalError(what); }

const JwtKeyPair& Key() {
  static const auto* const key = new JwtKeyPair(JwtKeyPair::Rsa());
  return *key;
}

// The policy's issuer "i", which has the key.
const std::vector<TokenIssuer>& Issuers() {
  static const auto* const issuers = [] {
    char folder[] = "/tmp/cohort-jwks-XXXXXX";
    if (mkdtemp(folder) == nullptr) std::abort();
    const std::string path = absl::StrCat(folder, "/jwks.json");
    std::ofstream(path) << JwksOf({Key().Jwk(kKeyId)});
    auto read = ReadTokenIssuers(
        json::array(
            {{{"name", "i"}, {"issuer", kIssuer}, {"audience", kAudience}, {"jwks", path}}}),
        {});
    if (!read.ok()) std::abort();
    unlink(path.c_str());
    rmdir(folder);
    return new std::vector<TokenIssuer>(*std::move(read));
  }();
  return *issuers;
}

// Returns an empty object for a text that is no object.
json ParseObject(absl::string_view text) {
  json parsed = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : json::object();
}

bool HasText(const json& object, const char* name, absl::string_view text) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() && found->get<std::string>() == text;
}

bool IsForUs(const json& claims) {
  const auto audience = claims.find("aud");
  if (audience == claims.end()) return false;
  return audience->is_string()
             ? audience->get<std::string>() == kAudience
             : std::find(audience->begin(), audience->end(), kAudience) != audience->end();
}

absl::Status CheckAccepted(const TokenIdentity& identity, const json& header, const json& claims) {
  if (!HasText(header, "kid", kKeyId) || header.contains("crit")) {
    return Violation("a token was accepted for its header");
  }
  if (!HasText(claims, "iss", kIssuer) || !IsForUs(claims)) {
    return Violation("a token of another issuer, or for another program, was accepted");
  }
  if (!claims.contains("exp") || !claims["exp"].is_number() || claims["exp"].get<double>() < 0 ||
      identity.expires == absl::InfiniteFuture()) {
    return Violation("a token without an end was accepted");
  }
  const std::string subject = claims.value("sub", "");
  if (subject.empty() || identity.name != absl::StrCat("jwt:i:", subject) ||
      std::any_of(subject.begin(), subject.end(), absl::ascii_iscntrl)) {
    return Violation("a token has another name than its subject");
  }
  return absl::OkStatus();
}

absl::Status CheckRefused(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && !status.message().empty()
             ? absl::OkStatus()
             : Violation(absl::StrCat("a token was refused with ", status.ToString()));
}

absl::Status CheckSigned(absl::string_view input, JwtCounts* counts) {
  const size_t end = std::min(input.find('\n'), input.size());
  const absl::string_view header = input.substr(0, end);
  const absl::string_view payload = input.substr(std::min(end + 1, input.size()));
  const json parsed = ParseObject(header);
  std::string algorithm = "RS256";
  for (const char* other : {"RS384", "RS512", "PS256"}) {
    if (HasText(parsed, "alg", other)) algorithm = other;
  }
  const auto identity = VerifyJwt(Key().TokenOf(algorithm, header, payload), Issuers());
  ++(identity.ok() ? counts->accepted : counts->refused);
  if (!identity.ok()) return CheckRefused(identity.status());
  if (!HasText(parsed, "alg", algorithm)) {
    return Violation("a token was accepted with a signature of another algorithm");
  }
  return CheckAccepted(*identity, parsed, ParseObject(payload));
}

absl::Status CheckToken(absl::string_view input, JwtCounts* counts) {
  const auto identity = VerifyJwt(input, Issuers());
  ++counts->refused;
  return identity.ok() ? Violation("a token without a signature of the key was accepted")
                       : CheckRefused(identity.status());
}

absl::Status CheckKeys(absl::string_view input, JwtCounts* counts) {
  const auto keys = Jwks::Parse(input);
  if (!keys.ok()) return CheckRefused(keys.status());
  ++counts->key_sets;
  const json parsed = ParseObject(input);
  std::set<std::string> ids = {"", "an id that no file has"};
  if (parsed.contains("keys")) {
    for (const json& entry : parsed["keys"]) {
      if (entry.is_object() && entry.contains("kid") && entry["kid"].is_string()) {
        ids.insert(entry["kid"].get<std::string>());
      }
    }
  }
  for (const std::string& id : ids) {
    const JwtKey* const key = keys->Find(id);
    if (key == nullptr) continue;
    if (id.empty() || !absl::StrContains(input, "\"kid\"")) {
      return Violation("a set has a key without an id");
    }
    for (const char* algorithm : {"RS256", "PS256", "ES256", "ES384"}) {
      if (MayVerify(algorithm, key->key.get()) &&
          VerifyJwtSignature(algorithm, key->key.get(), "text", std::string(256, 's'))) {
        return Violation("a key takes any signature");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckJwt(absl::string_view input, JwtCounts* counts) {
  JwtCounts ignored;
  if (counts == nullptr) counts = &ignored;
  if (input.empty()) return absl::OkStatus();
  const int kind = static_cast<uint8_t>(input[0]) % kKindCount;
  input.remove_prefix(1);
  if (kind == kSigned) return CheckSigned(input, counts);
  return kind == kToken ? CheckToken(input, counts) : CheckKeys(input, counts);
}

std::map<std::string, std::string> SampleJwts() {
  const std::string with_key(1, kSigned), token(1, kToken), keys(1, kKeys);
  const std::string good = absl::StrCat(with_key, kHeader, "\n", kClaims);
  const auto with = [&](const char* name, json value) {
    json claims = json::parse(kClaims);
    claims[name] = std::move(value);
    return absl::StrCat(with_key, kHeader, "\n", claims.dump());
  };
  const json rsa = Key().Jwk(kKeyId), ec = JwtKeyPair::Ec("P-256").Jwk("ec");
  json for_encryption = rsa, twice = ec, without_id = ec;
  for_encryption["use"] = "enc";
  twice["kid"] = kKeyId;
  without_id.erase("kid");
  return {
      {"good", good},
      {"good_ps256", absl::StrCat(with_key, R"({"kid": "rsa", "alg": "PS256"})", "\n", kClaims)},
      {"good_one_audience", with("aud", kAudience)},
      {"algorithm_none", absl::StrCat(with_key, R"({"alg": "none", "kid": "rsa"})", "\n", kClaims)},
      {"algorithm_hs256",
       absl::StrCat(with_key, R"({"alg": "HS256", "kid": "rsa"})", "\n", kClaims)},
      {"other_key", absl::StrCat(with_key, R"({"alg": "RS256", "kid": "no"})", "\n", kClaims)},
      {"critical",
       absl::StrCat(with_key, R"({"alg": "RS256", "kid": "rsa", "crit": ["x"]})", "\n", kClaims)},
      {"key_twice",
       absl::StrCat(with_key, R"({"alg": "none", "alg": "RS256", "kid": "rsa"})", "\n", kClaims)},
      {"subject_with_line_feed", with("sub", "pod\nother")},
      {"subject_empty", with("sub", "")},
      {"expiry_text", with("exp", "4000000000")},
      {"expiry_huge", with("exp", 1e300)},
      {"expiry_negative", with("exp", -1)},
      {"audience_nested", with("aud", json::array({json::array({kAudience})}))},
      {"other_issuer", with("iss", "https://issuer.example/")},
      {"no_claims", absl::StrCat(with_key, kHeader, "\n{}")},
      {"token_two_dots", token + ".."},
      {"token_unsigned",
       absl::StrCat(token, cohort::testing::UnsignedToken(kHeader, kClaims), ".")},
      {"token_wrong_signature",
       absl::StrCat(token, cohort::testing::UnsignedToken(kHeader, kClaims), ".c2ln")},
      {"token_long", token + std::string(5000, 'a')},
      {"keys_none", keys + R"({"keys": []})"},
      {"keys_two", keys + JwksOf({rsa, ec})},
      {"keys_one_for_encryption", keys + JwksOf({for_encryption, ec})},
      {"keys_same_id", keys + JwksOf({rsa, twice})},
      {"keys_without_id", keys + JwksOf({without_id})},
      {"keys_no_list", keys + R"({"keys": {"kid": "rsa"}})"},
      {"keys_nested", keys + std::string(100, '[')},
  };
}

}  // namespace cohort::fuzz
