// Certificates that no honest certificate authority signs.
#ifndef COHORT_TESTS_SECURITY_FORGED_CERTIFICATES_H_
#define COHORT_TESTS_SECURITY_FORGED_CERTIFICATES_H_

#include <openssl/ssl.h>

#include <string>

#include "base/tls/tls_context.h"

namespace cohort::testing {

// Has the session show the certificate of `files`, with a private key that is not its own.
void ShowWithoutItsKey(SSL* session, const TlsFiles& files);

// Has the session show a new certificate for `uri`, signed by the certificate of `signer`, which is
// a client's and no CA's.
void ShowSignedByClient(SSL* session, const TlsFiles& signer, const std::string& uri);

// Has the session show a new certificate for `uri` that is signed by its own key.
void ShowSelfSigned(SSL* session, const std::string& uri);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_SECURITY_FORGED_CERTIFICATES_H_
