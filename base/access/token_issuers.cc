#include "base/access/token_issuers.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/json_fields.h"
#include "base/access/jwt.h"
#include "base/access/jwt_signature.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

using nlohmann::json;

constexpr size_t kMaxIssuers = 16;
constexpr size_t kMaxIssuerNameBytes = 64;
// As long as a SPIFFE id may be: errors and the journal hold names.
constexpr size_t kMaxNameBytes = 2048;
constexpr size_t kMaxShownBytes = 128;

absl::Status Wrong(absl::string_view why) { return absl::InvalidArgumentError(why); }

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxShownBytes)), "\"");
}

std::string Date(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

bool IsIssuerName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxIssuerNameBytes &&
         std::all_of(name.begin(), name.end(), [](char byte) {
           return absl::ascii_isalnum(static_cast<unsigned char>(byte)) ||
                  absl::StrContains("-_.", byte);
         });
}

absl::StatusOr<std::shared_ptr<JwksFile>> KeysOf(const std::string& path,
                                                 const std::vector<TokenIssuer>& before) {
  for (const TokenIssuer& issuer : before) {
    if (issuer.keys->path() == path) return issuer.keys;
  }
  return JwksFile::Load(path);
}

absl::StatusOr<TokenIssuer> ReadIssuer(const json& entry, const std::vector<TokenIssuer>& before) {
  COHORT_RETURN_IF_ERROR(CheckFields(entry, {"name", "issuer", "audience", "jwks"}));
  TokenIssuer read;
  read.name = TextField(entry, "name");
  if (!IsIssuerName(read.name)) {
    return Wrong(absl::StrCat("name must have 1 to ", kMaxIssuerNameBytes,
                              " letters, digits, \"-\", \"_\" and \".\""));
  }
  read.issuer = TextField(entry, "issuer");
  if (read.issuer.empty()) return Wrong("issuer must be the text of the claim iss");
  read.audience = TextField(entry, "audience");
  if (read.audience.empty()) return Wrong("audience must be a text of the claim aud");
  const std::string path = TextField(entry, "jwks");
  if (path.empty()) return Wrong("jwks must be the path of a file");
  COHORT_ASSIGN_OR_RETURN(read.keys, KeysOf(path, before));
  return read;
}

absl::StatusOr<TokenIdentity> IdentityOf(const Jwt& jwt, const TokenIssuer& issuer) {
  TokenIdentity identity;
  identity.name = absl::StrCat("jwt:", issuer.name, ":", jwt.subject);
  if (identity.name.size() > kMaxNameBytes) {
    return Wrong(
        absl::StrCat("whose subject (sub) makes a name of more than ", kMaxNameBytes, " bytes"));
  }
  identity.begins = jwt.begins;
  identity.expires = jwt.expires;
  return identity;
}

}  // namespace

absl::Status TokenIdentity::CheckTime(absl::Time wall) const {
  if (wall >= expires + kTokenLeeway) {
    return Wrong(absl::StrCat("of ", name, " that has expired at ", Date(expires)));
  }
  if (wall < begins - kTokenLeeway) {
    return Wrong(absl::StrCat("of ", name, " that is not valid before ", Date(begins)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenIssuer>> ReadTokenIssuers(const json& list,
                                                          const std::vector<TokenIssuer>& before) {
  if (!list.is_array() || list.size() > kMaxIssuers) {
    return Wrong(absl::StrCat("\"issuers\" must be a list of at most ", kMaxIssuers));
  }
  std::vector<TokenIssuer> issuers;
  for (const json& entry : list) {
    const std::string place = absl::StrCat("issuer ", issuers.size() + 1, ": ");
    absl::StatusOr<TokenIssuer> read = ReadIssuer(entry, before);
    if (!read.ok()) return Wrong(absl::StrCat(place, read.status().message()));
    for (const TokenIssuer& other : issuers) {
      if (other.name == read->name) return Wrong(place + "has the name of another issuer");
      if (other.issuer == read->issuer) return Wrong(place + "has the issuer of another entry");
      // Both share one file, which is looked at once.
      if (other.keys->path() == read->keys->path()) read->keys = other.keys;
    }
    issuers.push_back(*std::move(read));
  }
  return issuers;
}

absl::StatusOr<TokenIdentity> VerifyJwt(absl::string_view token,
                                        const std::vector<TokenIssuer>& issuers) {
  COHORT_ASSIGN_OR_RETURN(const Jwt jwt, ParseJwt(token));
  const auto issuer = std::find_if(issuers.begin(), issuers.end(), [&jwt](const TokenIssuer& one) {
    return one.issuer == jwt.issuer;
  });
  if (issuer == issuers.end()) {
    return Wrong(absl::StrCat("of the issuer ", Quoted(jwt.issuer),
                              ", which the access policy does not have"));
  }
  if (std::find(jwt.audiences.begin(), jwt.audiences.end(), issuer->audience) ==
      jwt.audiences.end()) {
    return Wrong(absl::StrCat("for another audience than ", Quoted(issuer->audience)));
  }
  const std::shared_ptr<const Jwks> keys = issuer->keys->keys();
  const JwtKey* const key = keys->Find(jwt.key_id);
  if (key == nullptr) {
    return Wrong(absl::StrCat("signed with the key ", Quoted(jwt.key_id), ", which the issuer ",
                              issuer->name, " does not have"));
  }
  if (!MayVerify(jwt.algorithm, key->key.get()) ||
      (!key->algorithm.empty() && key->algorithm != jwt.algorithm)) {
    return Wrong(absl::StrCat("with the algorithm ", jwt.algorithm, ", for which the key ",
                              Quoted(jwt.key_id), " is not made"));
  }
  if (!VerifyJwtSignature(jwt.algorithm, key->key.get(), jwt.signed_text, jwt.signature)) {
    return Wrong("with a wrong signature");
  }
  return IdentityOf(jwt, *issuer);
}

}  // namespace cohort
