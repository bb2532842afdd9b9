// The names in a certificate, and its end.
#ifndef COHORT_BASE_TLS_PEER_CERTIFICATE_H_
#define COHORT_BASE_TLS_PEER_CERTIFICATE_H_

#include <openssl/x509.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cohort {

struct PeerCertificate {
  std::vector<std::string> uris;  // SPIFFE ids among them
  std::vector<std::string> dns_names;
  std::string common_name;
  // When the first certificate between it and the CA ends, itself and the CA's included.
  absl::Time not_after = absl::InfiniteFuture();

  bool empty() const { return uris.empty() && dns_names.empty() && common_name.empty(); }
  // The first of: a URI, a DNS name, the common name.
  const std::string& name() const;
};

// A name with a zero byte, and one that is not UTF-8, is left out. not_after is of the certificate
// alone.
PeerCertificate ReadCertificate(X509* certificate);
absl::Time EndOfCertificate(X509* certificate);

}  // namespace cohort

#endif  // COHORT_BASE_TLS_PEER_CERTIFICATE_H_
