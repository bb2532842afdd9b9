// The signature of a JSON Web Token (RFC 7518).
#ifndef COHORT_BASE_ACCESS_JWT_SIGNATURE_H_
#define COHORT_BASE_ACCESS_JWT_SIGNATURE_H_

#include <openssl/evp.h>

#include "absl/strings/string_view.h"

namespace cohort {

// A public key signs with each of them; "none" and those with a shared secret are left out.
inline constexpr absl::string_view kJwtAlgorithms = "RS256, RS384, RS512, PS256, ES256, ES384";

// RSA keys of other sizes are not used: shorter ones are weak, longer ones are slow.
inline constexpr int kMinRsaBits = 2048;
inline constexpr int kMaxRsaBits = 8192;

bool IsJwtAlgorithm(absl::string_view name);

// Whether keys of this type, and for ES256 and ES384 of this curve, sign with the algorithm.
bool MayVerify(absl::string_view algorithm, const EVP_PKEY* key);

// False: `key` did not make `signature` of `text`. Precondition: MayVerify. With
// OpenSSL 3.0, ES384 takes more than 1 ms, RS256 and ES256 less than 0.1 ms.
bool VerifyJwtSignature(absl::string_view algorithm, EVP_PKEY* key, absl::string_view text,
                        absl::string_view signature);

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_JWT_SIGNATURE_H_
