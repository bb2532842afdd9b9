// Certificates for tests, made on the spot.
#ifndef COHORT_BASE_TLS_TESTING_CERTIFICATES_H_
#define COHORT_BASE_TLS_TESTING_CERTIFICATES_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/tls/tls_context.h"

namespace cohort::testing {

struct CertificateNames {
  std::string common_name;
  // As OpenSSL writes it: "DNS:localhost,IP:127.0.0.1,URI:spiffe://domain/path".
  std::string alternative_names;
  absl::Duration begins = -absl::Hours(1);  // from now
  absl::Duration ends = absl::Hours(1);
};

// Signs certificates. Its files lie in `folder`, which exists.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(std::string folder, const std::string& name = "test-ca");

  // Writes NAME.crt and NAME.key, in place of older ones, and returns them with this CA's own.
  TlsFiles Sign(const std::string& name, const CertificateNames& names) const;
  // Writes NAME.crl, which revokes `certificate`, a PEM file ("": none), and returns its path.
  std::string Revoke(const std::string& name, const std::string& certificate,
                     absl::Duration ends = absl::Hours(1)) const;
  const std::string& path() const { return path_; }

 private:
  struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };

  const std::string folder_;
  const std::string path_;
  std::unique_ptr<EVP_PKEY, Free> key_;
  std::unique_ptr<X509, Free> certificate_;
};

}  // namespace cohort::testing

#endif  // COHORT_BASE_TLS_TESTING_CERTIFICATES_H_
