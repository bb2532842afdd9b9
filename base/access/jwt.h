// The parts of a JSON Web Token (RFC 7519), before its signature is checked.
#ifndef COHORT_BASE_ACCESS_JWT_H_
#define COHORT_BASE_ACCESS_JWT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort {

inline constexpr size_t kMaxJwtBytes = 4096;

struct Jwt {
  std::string algorithm;  // one of kJwtAlgorithms
  std::string key_id;
  std::string issuer;
  std::vector<std::string> audiences;
  std::string subject;  // without control characters
  absl::Time expires;
  absl::Time begins = absl::InfinitePast();
  absl::string_view signed_text;  // a part of the token
  std::string signature;
};

// Whether a token has the form a.b.c. Other tokens can have it, too.
bool LooksLikeJwt(absl::string_view token);

// Errors: INVALID_ARGUMENT, a text that follows the words "a client with a token", such as "without
// an expiry (exp)". It has no part of the token but the name of the algorithm.
absl::StatusOr<Jwt> ParseJwt(absl::string_view token);

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_JWT_H_
