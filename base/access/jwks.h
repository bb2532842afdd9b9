// The public keys of an issuer of tokens: a JSON Web Key Set (RFC 7517).
#ifndef COHORT_BASE_ACCESS_JWKS_H_
#define COHORT_BASE_ACCESS_JWKS_H_

#include <openssl/evp.h>

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

struct JwtKey {
  std::shared_ptr<EVP_PKEY> key;
  std::string algorithm;  // the only one of the key; empty: the set names none
};

// Immutable, hence thread-safe, as a signature check with an EVP_PKEY is.
class Jwks {
 public:
  // Leaves out keys that are not for signatures of the algorithms in jwt_signature.h: those of
  // other types ("kty"), curves and algorithms, and those with another "use". A set without keys
  // is valid: it ends the rights of all tokens of its issuer.
  // Errors: INVALID_ARGUMENT, a text such as "key 2: has no kid".
  static absl::StatusOr<Jwks> Parse(absl::string_view text);

  // Null: the set has no key with this id ("kid").
  const JwtKey* Find(absl::string_view id) const;

 private:
  absl::flat_hash_map<std::string, JwtKey> keys_;  // by id
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_JWKS_H_
