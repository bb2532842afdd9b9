#include "base/access/jwt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/access/base64url.h"
#include "base/access/json_fields.h"
#include "base/access/jwt_signature.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

using nlohmann::json;

constexpr double kYear10000 = 253402300800;  // in Unix seconds
constexpr size_t kMaxShownBytes = 32;

absl::Status Wrong(absl::string_view why) { return absl::InvalidArgumentError(why); }

absl::StatusOr<json> ParsePart(absl::string_view encoded, absl::string_view name) {
  const std::optional<std::string> text = DecodeBase64Url(encoded);
  if (!text.has_value()) return Wrong(absl::StrCat("whose ", name, " is not base64url"));
  absl::StatusOr<json> parsed = ParseStrictJson(*text);
  if (!parsed.ok()) return Wrong(absl::StrCat("whose ", name, " ", parsed.status().message()));
  return parsed;
}

absl::Status ReadHeader(const json& header, Jwt* jwt) {
  // A token that has extensions is not valid for a program that does not know them.
  if (header.contains("crit")) return Wrong("with extensions (crit), which Cohort does not know");
  jwt->algorithm = TextField(header, "alg");
  if (!IsJwtAlgorithm(jwt->algorithm)) {
    return Wrong(absl::StrCat("with the algorithm \"",
                              absl::CHexEscape(jwt->algorithm.substr(0, kMaxShownBytes)),
                              "\"; expected ", kJwtAlgorithms));
  }
  jwt->key_id = TextField(header, "kid");
  if (jwt->key_id.empty()) return Wrong("without the id of a key (kid)");
  return absl::OkStatus();
}

// Nothing: `value` is not a date in seconds.
std::optional<absl::Time> ReadDate(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const double seconds = value.get<double>();
  if (!(seconds >= 0 && seconds < kYear10000)) return std::nullopt;
  return absl::FromUnixSeconds(static_cast<int64_t>(std::floor(seconds)));
}

absl::Status ReadDates(const json& claims, Jwt* jwt) {
  const auto expires = claims.find("exp");
  if (expires == claims.end()) return Wrong("without an expiry (exp)");
  const std::optional<absl::Time> end = ReadDate(*expires);
  if (!end.has_value()) return Wrong("whose expiry (exp) is not a date");
  jwt->expires = *end;
  const auto begins = claims.find("nbf");
  if (begins == claims.end()) return absl::OkStatus();
  const std::optional<absl::Time> begin = ReadDate(*begins);
  if (!begin.has_value()) return Wrong("whose begin (nbf) is not a date");
  jwt->begins = *begin;
  return absl::OkStatus();
}

absl::Status ReadAudiences(const json& claims, Jwt* jwt) {
  const auto found = claims.find("aud");
  if (found == claims.end()) return Wrong("without an audience (aud)");
  if (found->is_string()) {
    jwt->audiences.push_back(found->get<std::string>());
    return absl::OkStatus();
  }
  if (!found->is_array()) return Wrong("whose audience (aud) is no text and no list");
  for (const json& audience : *found) {
    if (!audience.is_string()) return Wrong("whose list of audiences (aud) is not of texts");
    jwt->audiences.push_back(audience.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadClaims(const json& claims, Jwt* jwt) {
  jwt->issuer = TextField(claims, "iss");
  if (jwt->issuer.empty()) return Wrong("without an issuer (iss)");
  COHORT_RETURN_IF_ERROR(ReadAudiences(claims, jwt));
  COHORT_RETURN_IF_ERROR(ReadDates(claims, jwt));
  jwt->subject = TextField(claims, "sub");
  if (jwt->subject.empty()) return Wrong("without a subject (sub)");
  // Errors and the log show it.
  const bool has_control = std::any_of(jwt->subject.begin(), jwt->subject.end(), [](char byte) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(byte));
  });
  if (has_control) return Wrong("whose subject (sub) has a control character");
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeJwt(absl::string_view token) {
  return std::count(token.begin(), token.end(), '.') == 2;
}

absl::StatusOr<Jwt> ParseJwt(absl::string_view token) {
  if (token.size() > kMaxJwtBytes) {
    return Wrong(absl::StrCat("of more than ", kMaxJwtBytes, " bytes"));
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  if (parts.size() != 3) return Wrong("that is no JSON Web Token");
  Jwt jwt;
  COHORT_ASSIGN_OR_RETURN(const json header, ParsePart(parts[0], "header"));
  COHORT_RETURN_IF_ERROR(ReadHeader(header, &jwt));
  COHORT_ASSIGN_OR_RETURN(const json claims, ParsePart(parts[1], "payload"));
  COHORT_RETURN_IF_ERROR(ReadClaims(claims, &jwt));
  std::optional<std::string> signature = DecodeBase64Url(parts[2]);
  if (!signature.has_value()) return Wrong("whose signature is not base64url");
  if (signature->empty()) return Wrong("without a signature");
  jwt.signature = *std::move(signature);
  jwt.signed_text = token.substr(0, parts[0].size() + 1 + parts[1].size());
  return jwt;
}

}  // namespace cohort
