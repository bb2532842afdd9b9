// Signed tokens for tests, with keys made on the spot.
#ifndef COHORT_BASE_ACCESS_TESTING_JWT_MAKER_H_
#define COHORT_BASE_ACCESS_TESTING_JWT_MAKER_H_

#include <openssl/evp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace cohort::testing {

class JwtKeyPair {
 public:
  static JwtKeyPair Rsa(unsigned bits = 2048);
  // `curve`: "P-256" or another one that OpenSSL knows.
  static JwtKeyPair Ec(const char* curve);

  // The public key as an entry of a JWKS.
  nlohmann::json Jwk(const std::string& kid) const;
  // The public key in PEM, as a program may have it that mistakes it for a shared secret.
  std::string Pem() const;
  // The bytes of a signature with an algorithm of the key's type, such as "ES256".
  std::string Sign(absl::string_view algorithm, absl::string_view text) const;
  // A token with these claims and {"alg": algorithm, "kid": kid}.
  std::string Token(absl::string_view algorithm, const std::string& kid,
                    const nlohmann::json& claims) const;
  // A token with any header and payload.
  std::string TokenOf(absl::string_view algorithm, absl::string_view header,
                      absl::string_view payload) const;

 private:
  explicit JwtKeyPair(EVP_PKEY* key) : key_(key, EVP_PKEY_free) {}

  std::shared_ptr<EVP_PKEY> key_;
};

std::string JwksOf(const std::vector<nlohmann::json>& keys);

// "HEADER.PAYLOAD" in base64url.
std::string UnsignedToken(absl::string_view header, absl::string_view payload);

}  // namespace cohort::testing

#endif  // COHORT_BASE_ACCESS_TESTING_JWT_MAKER_H_
