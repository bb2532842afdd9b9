// The certificates and the token with which the clients of this process connect to coordinators and
// workers.
#ifndef COHORT_BASE_RPC_CLIENT_TLS_H_
#define COHORT_BASE_RPC_CLIENT_TLS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/rpc/token_file.h"
#include "base/tls/tls_context.h"
#include "grpcpp/security/credentials.h"

namespace cohort {

// The paths in COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and COHORT_TLS_CA.
TlsFiles TlsFilesOfEnvironment();
// The path in COHORT_TOKEN_FILE.
std::string TokenFileOfEnvironment();

struct ClientTls {
  std::shared_ptr<TlsContext> framed_rpc;  // null: plain
  std::shared_ptr<TokenFile> token;        // null: none
  std::shared_ptr<grpc::ChannelCredentials> grpc;
};

// For connections to `address`: plain without files, and over a Unix socket. Connections with the
// same files share one context, which is loaded again when the files change. `token_file` is a
// path; empty: no token is sent. A Unix socket gets no token: the kernel names its client. Errors:
// INVALID_ARGUMENT with the path and the reason, or a token would be sent without TLS.
absl::StatusOr<ClientTls> ClientTlsFor(absl::string_view address, const TlsFiles& files,
                                       const std::string& token_file = "");
// For gRPC connections to another rank. Both sides show a certificate that the other's `files.ca` has
// signed, the other rank one with the name `name` (PeerCertificate::name) and any host. Certificates
// that are limited to uses must include servers on the server's side, and clients on this one.
std::shared_ptr<grpc::ChannelCredentials> PeerCredentialsFor(const TlsFiles& files,
                                                             const std::string& name);
// The same with the files that the environment names.
absl::StatusOr<ClientTls> ClientTlsOfEnvironment(absl::string_view address);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_CLIENT_TLS_H_
