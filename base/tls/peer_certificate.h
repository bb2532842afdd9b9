// The names in a certificate.
#ifndef COHORT_BASE_TLS_PEER_CERTIFICATE_H_
#define COHORT_BASE_TLS_PEER_CERTIFICATE_H_

#include <openssl/x509.h>

#include <string>
#include <vector>

namespace cohort {

struct PeerCertificate {
  std::vector<std::string> uris;  // SPIFFE ids among them
  std::vector<std::string> dns_names;
  std::string common_name;

  bool empty() const { return uris.empty() && dns_names.empty() && common_name.empty(); }
  // The first of: a URI, a DNS name, the common name.
  const std::string& name() const;
};

// A name with a zero byte, and one that is not UTF-8, is left out.
PeerCertificate ReadCertificate(X509* certificate);

}  // namespace cohort

#endif  // COHORT_BASE_TLS_PEER_CERTIFICATE_H_
