#include "base/access/testing/jwt_maker.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/base64url.h"

namespace cohort::testing {
namespace {

using nlohmann::json;

// A test cannot go on without its keys.
void Check(bool made, const char* what) {
  if (made) return;
  std::fprintf(stderr, "no %s\n", what);
  std::abort();
}

std::string Number(EVP_PKEY* key, const char* name, int bytes) {
  BIGNUM* number = nullptr;
  Check(EVP_PKEY_get_bn_param(key, name, &number) == 1, name);
  std::string text(static_cast<size_t>(bytes > 0 ? bytes : BN_num_bytes(number)), '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(&text[0]), static_cast<int>(text.size()));
  BN_free(number);
  return EncodeBase64Url(text);
}

const EVP_MD* DigestOf(absl::string_view algorithm) {
  if (absl::EndsWith(algorithm, "384")) return EVP_sha384();
  return absl::EndsWith(algorithm, "512") ? EVP_sha512() : EVP_sha256();
}

// r and s side by side.
std::string RawEcdsa(const std::string& der, int half) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  ECDSA_SIG* const parts = d2i_ECDSA_SIG(nullptr, &bytes, static_cast<long>(der.size()));
  Check(parts != nullptr, "ECDSA signature");
  std::string raw(static_cast<size_t>(2 * half), '\0');
  auto* const to = reinterpret_cast<unsigned char*>(&raw[0]);
  BN_bn2binpad(ECDSA_SIG_get0_r(parts), to, half);
  BN_bn2binpad(ECDSA_SIG_get0_s(parts), to + half, half);
  ECDSA_SIG_free(parts);
  return raw;
}

}  // namespace

JwtKeyPair JwtKeyPair::Rsa(unsigned bits) {
  EVP_PKEY* const key = EVP_RSA_gen(bits);
  Check(key != nullptr, "RSA key");
  return JwtKeyPair(key);
}

JwtKeyPair JwtKeyPair::Ec(const char* curve) {
  EVP_PKEY* const key = EVP_EC_gen(curve);
  Check(key != nullptr, "EC key");
  return JwtKeyPair(key);
}

json JwtKeyPair::Jwk(const std::string& kid) const {
  EVP_PKEY* const key = key_.get();
  json entry = {{"kid", kid}, {"use", "sig"}};
  if (EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA) {
    entry["kty"] = "RSA";
    entry["n"] = Number(key, OSSL_PKEY_PARAM_RSA_N, 0);
    entry["e"] = Number(key, OSSL_PKEY_PARAM_RSA_E, 0);
    return entry;
  }
  const int bits = EVP_PKEY_get_bits(key);
  entry["kty"] = "EC";
  entry["crv"] = absl::StrCat("P-", bits);
  entry["x"] = Number(key, OSSL_PKEY_PARAM_EC_PUB_X, (bits + 7) / 8);
  entry["y"] = Number(key, OSSL_PKEY_PARAM_EC_PUB_Y, (bits + 7) / 8);
  return entry;
}

std::string JwtKeyPair::Pem() const {
  BIO* const memory = BIO_new(BIO_s_mem());
  Check(memory != nullptr && PEM_write_bio_PUBKEY(memory, key_.get()) == 1, "PEM");
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory, &text);
  const std::string copy(text, static_cast<size_t>(size));
  BIO_free(memory);
  return copy;
}

std::string JwtKeyPair::Sign(absl::string_view algorithm, absl::string_view text) const {
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  EVP_PKEY_CTX* parameters = nullptr;
  Check(context != nullptr &&
            EVP_DigestSignInit(context, &parameters, DigestOf(algorithm), nullptr, key_.get()) == 1,
        "signature");
  if (absl::StartsWith(algorithm, "PS")) {
    EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING);
    EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, RSA_PSS_SALTLEN_DIGEST);
  }
  size_t size = static_cast<size_t>(EVP_PKEY_get_size(key_.get()));
  std::string signature(size, '\0');
  Check(EVP_DigestSign(context, reinterpret_cast<unsigned char*>(&signature[0]), &size,
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1,
        "signature");
  signature.resize(size);
  EVP_MD_CTX_free(context);
  if (EVP_PKEY_get_base_id(key_.get()) != EVP_PKEY_EC) return signature;
  return RawEcdsa(signature, (EVP_PKEY_get_bits(key_.get()) + 7) / 8);
}

std::string JwtKeyPair::Token(absl::string_view algorithm, const std::string& kid,
                              const json& claims) const {
  const json header = {{"alg", std::string(algorithm)}, {"kid", kid}};
  return TokenOf(algorithm, header.dump(), claims.dump());
}

std::string JwtKeyPair::TokenOf(absl::string_view algorithm, absl::string_view header,
                                absl::string_view payload) const {
  const std::string text = UnsignedToken(header, payload);
  return absl::StrCat(text, ".", EncodeBase64Url(Sign(algorithm, text)));
}

std::string JwksOf(const std::vector<json>& keys) {
  json set;
  set["keys"] = keys;
  return set.dump();
}

std::string UnsignedToken(absl::string_view header, absl::string_view payload) {
  return absl::StrCat(EncodeBase64Url(header), ".", EncodeBase64Url(payload));
}

}  // namespace cohort::testing
