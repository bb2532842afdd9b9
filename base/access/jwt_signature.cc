#include "base/access/jwt_signature.h"

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/rsa.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

namespace cohort {
namespace {

struct Algorithm {
  absl::string_view name;
  int key_type;
  bool pss;      // of RSA
  int key_bits;  // of an elliptic curve
  const EVP_MD* (*digest)();
};

constexpr std::array<Algorithm, 6> kAlgorithms = {{
    {"RS256", EVP_PKEY_RSA, false, 0, EVP_sha256},
    {"RS384", EVP_PKEY_RSA, false, 0, EVP_sha384},
    {"RS512", EVP_PKEY_RSA, false, 0, EVP_sha512},
    {"PS256", EVP_PKEY_RSA, true, 0, EVP_sha256},
    {"ES256", EVP_PKEY_EC, false, 256, EVP_sha256},
    {"ES384", EVP_PKEY_EC, false, 384, EVP_sha384},
}};

const Algorithm* Find(absl::string_view name) {
  const auto* const found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                                         [name](const Algorithm& one) { return one.name == name; });
  return found == kAlgorithms.end() ? nullptr : found;
}

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// A JWT has r and s side by side, each as long as the curve's order; OpenSSL takes them in DER.
// Empty: the size is another one.
std::string EcdsaDer(absl::string_view signature, int key_bits) {
  const size_t half = static_cast<size_t>(key_bits) / 8;
  if (signature.size() != 2 * half) return {};
  const std::unique_ptr<ECDSA_SIG, void (*)(ECDSA_SIG*)> parts(ECDSA_SIG_new(), ECDSA_SIG_free);
  BIGNUM* const r = BN_bin2bn(Bytes(signature), static_cast<int>(half), nullptr);
  BIGNUM* const s = BN_bin2bn(Bytes(signature) + half, static_cast<int>(half), nullptr);
  if (parts == nullptr || r == nullptr || s == nullptr ||
      ECDSA_SIG_set0(parts.get(), r, s) != 1) {  // takes them
    BN_free(r);
    BN_free(s);
    return {};
  }
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(parts.get(), &der);
  if (size <= 0) return {};
  std::string copy(reinterpret_cast<const char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return copy;
}

}  // namespace

bool IsJwtAlgorithm(absl::string_view name) { return Find(name) != nullptr; }

bool MayVerify(absl::string_view algorithm, const EVP_PKEY* key) {
  const Algorithm* const found = Find(algorithm);
  if (found == nullptr || EVP_PKEY_get_base_id(key) != found->key_type) return false;
  const int bits = EVP_PKEY_get_bits(key);
  if (found->key_type == EVP_PKEY_EC) return bits == found->key_bits;
  return bits >= kMinRsaBits && bits <= kMaxRsaBits;
}

bool VerifyJwtSignature(absl::string_view algorithm, EVP_PKEY* key, absl::string_view text,
                        absl::string_view signature) {
  const Algorithm* const found = Find(algorithm);
  if (found == nullptr || !MayVerify(algorithm, key)) return false;
  std::string der;
  if (found->key_type == EVP_PKEY_EC) {
    der = EcdsaDer(signature, found->key_bits);
    if (der.empty()) return false;
    signature = der;
  } else if (signature.size() != static_cast<size_t>(EVP_PKEY_get_size(key))) {
    return false;
  }
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  EVP_PKEY_CTX* parameters = nullptr;  // belongs to `context`
  bool verified = context != nullptr && EVP_DigestVerifyInit(context.get(), &parameters,
                                                             found->digest(), nullptr, key) == 1;
  if (verified && found->key_type == EVP_PKEY_RSA) {
    verified = EVP_PKEY_CTX_set_rsa_padding(
                   parameters, found->pss ? RSA_PKCS1_PSS_PADDING : RSA_PKCS1_PADDING) == 1;
  }
  if (verified && found->pss) {
    verified = EVP_PKEY_CTX_set_rsa_mgf1_md(parameters, found->digest()) == 1 &&
               EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, RSA_PSS_SALTLEN_DIGEST) == 1;
  }
  verified = verified && EVP_DigestVerify(context.get(), Bytes(signature), signature.size(),
                                          Bytes(text), text.size()) == 1;
  // The next call of TLS on this thread must not find the errors of this one.
  ERR_clear_error();
  return verified;
}

}  // namespace cohort
