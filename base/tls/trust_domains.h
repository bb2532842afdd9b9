// CAs that sign SPIFFE ids of one trust domain alone.
#ifndef COHORT_BASE_TLS_TRUST_DOMAINS_H_
#define COHORT_BASE_TLS_TRUST_DOMAINS_H_

#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/tls/peer_certificate.h"

namespace cohort {

struct CaFile {
  std::string trust_domain;  // empty: the CAs sign for all domains, and also names of other kinds
  std::string path;
};

// Reads FILE or DOMAIN=FILE. A text with "/" before its first "=" is a FILE.
CaFile ParseCaFile(absl::string_view text);

// The CAs of each file that a server trusts. Thread-compatible.
class TrustDomains {
 public:
  // Null: all CAs of `store` sign for all domains.
  static const TrustDomains* Of(const X509_STORE* store);
  // Makes certificates that `store` verifies subject to `files`, which it has loaded already.
  // Returns the path of a file that cannot be read; empty: all could.
  static std::string Set(X509_STORE* store, const std::vector<CaFile>& files);

  // Returns why the CA of a verified chain may not sign the certificate; empty: it may.
  static std::string Refusal(X509_STORE_CTX* verified);
  // Takes the DNS names from a certificate with an id of a domain that has a file: its CA gives
  // ids alone.
  void LimitNames(PeerCertificate* certificate) const;

 private:
  struct Bundle {
    std::string trust_domain;
    std::unique_ptr<X509_STORE, void (*)(X509_STORE*)> cas;
  };

  std::vector<Bundle> bundles_;
};

}  // namespace cohort

#endif  // COHORT_BASE_TLS_TRUST_DOMAINS_H_
