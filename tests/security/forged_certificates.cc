#include "tests/security/forged_certificates.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>

#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

struct Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(OSSL_PARAM_BLD* builder) const { OSSL_PARAM_BLD_free(builder); }
  void operator()(OSSL_PARAM* parameters) const { OSSL_PARAM_free(parameters); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<X509> ReadCertificate(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  Owned<X509> certificate(PEM_read_X509(file, nullptr, nullptr, nullptr));
  std::fclose(file);
  return certificate;
}

Owned<EVP_PKEY> ReadKey(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  Owned<EVP_PKEY> key(PEM_read_PrivateKey(file, nullptr, nullptr, nullptr));
  std::fclose(file);
  return key;
}

// Not signed yet; its names are "forged" and `uri`.
Owned<X509> NewCertificate(EVP_PKEY* key, const std::string& uri) {
  Owned<X509> made(X509_new());
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 7);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>("forged"), -1, -1, 0);
  X509_EXTENSION* const name =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("URI:" + uri).c_str());
  X509_add_ext(made.get(), name, -1);
  X509_EXTENSION_free(name);
  return made;
}

}  // namespace

void ShowWithoutItsKey(SSL* session, const TlsFiles& files) {
  const Owned<X509> certificate = ReadCertificate(files.certificate);
  const Owned<EVP_PKEY> own(EVP_EC_gen("P-256"));
  // The public half is the certificate's, so that OpenSSL takes the pair.
  unsigned char point[200];
  size_t size = 0;
  ASSERT_EQ(EVP_PKEY_get_octet_string_param(X509_get0_pubkey(certificate.get()),
                                            OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point), &size),
            1);
  BIGNUM* raw = nullptr;
  ASSERT_EQ(EVP_PKEY_get_bn_param(own.get(), OSSL_PKEY_PARAM_PRIV_KEY, &raw), 1);
  const Owned<BIGNUM> secret(raw);
  const Owned<OSSL_PARAM_BLD> builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point, size);
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, secret.get());
  const Owned<OSSL_PARAM> parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const Owned<EVP_PKEY_CTX> context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* pair = nullptr;
  ASSERT_EQ(EVP_PKEY_fromdata_init(context.get()), 1);
  ASSERT_EQ(EVP_PKEY_fromdata(context.get(), &pair, EVP_PKEY_KEYPAIR, parameters.get()), 1);
  const Owned<EVP_PKEY> mixed(pair);
  ASSERT_EQ(SSL_use_certificate(session, certificate.get()), 1);
  ASSERT_EQ(SSL_use_PrivateKey(session, mixed.get()), 1);
}

void ShowSignedByClient(SSL* session, const TlsFiles& signer, const std::string& uri) {
  const Owned<X509> issuer = ReadCertificate(signer.certificate);
  const Owned<EVP_PKEY> issuer_key = ReadKey(signer.key);
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> made = NewCertificate(key.get(), uri);
  X509_set_issuer_name(made.get(), X509_get_subject_name(issuer.get()));
  ASSERT_GT(X509_sign(made.get(), issuer_key.get(), EVP_sha256()), 0);
  ASSERT_EQ(SSL_use_certificate(session, made.get()), 1);
  ASSERT_EQ(SSL_use_PrivateKey(session, key.get()), 1);
  ASSERT_EQ(SSL_add1_chain_cert(session, issuer.get()), 1);
}

void ShowSelfSigned(SSL* session, const std::string& uri) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const Owned<X509> made = NewCertificate(key.get(), uri);
  X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
  ASSERT_GT(X509_sign(made.get(), key.get(), EVP_sha256()), 0);
  ASSERT_EQ(SSL_use_certificate(session, made.get()), 1);
  ASSERT_EQ(SSL_use_PrivateKey(session, key.get()), 1);
}

}  // namespace cohort::testing
