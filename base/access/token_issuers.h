// The issuers of tokens that an access policy trusts, and the clients that their tokens name.
#ifndef COHORT_BASE_ACCESS_TOKEN_ISSUERS_H_
#define COHORT_BASE_ACCESS_TOKEN_ISSUERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/jwks_file.h"
#include "nlohmann/json_fwd.hpp"

namespace cohort {

// The clock of an issuer may differ from this machine's by so much.
inline constexpr absl::Duration kTokenLeeway = absl::Seconds(30);

// {"name": "k8s", "issuer": "https://kubernetes.default.svc", "audience": "cohort",
//  "jwks": "/etc/cohort/jwks.json"}
struct TokenIssuer {
  std::string name;      // 1 to 64 letters, digits, "-", "_" and "."
  std::string issuer;    // as in the claim "iss"
  std::string audience;  // has to be in the claim "aud"
  std::shared_ptr<JwksFile> keys;
};

// The client of a token with a valid signature.
struct TokenIdentity {
  // "jwt:ISSUER-NAME:SUBJECT". The name of an issuer has no colon, so no subject makes the token
  // look like that of another issuer.
  std::string name;
  absl::Time begins;
  absl::Time expires;

  // INVALID_ARGUMENT as for VerifyJwt: the token is not valid at this time of the day.
  absl::Status CheckTime(absl::Time wall) const;
};

// Reads the list "issuers" of a policy. An issuer whose file is also in `before` keeps that file's
// keys, so that a file that cannot be used does not keep a new policy out.
// Errors: INVALID_ARGUMENT, a text such as "issuer 2: has the name of another issuer".
absl::StatusOr<std::vector<TokenIssuer>> ReadTokenIssuers(const nlohmann::json& list,
                                                          const std::vector<TokenIssuer>& before);

// Checks all but the time. Errors: INVALID_ARGUMENT, a text that follows the words "a client with a
// token", such as "with a wrong signature". It shows no more of the token than the algorithm, the
// issuer and the id of the key.
absl::StatusOr<TokenIdentity> VerifyJwt(absl::string_view token,
                                        const std::vector<TokenIssuer>& issuers);

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_TOKEN_ISSUERS_H_
