// The certificates with which the clients of this process connect to coordinators.
#ifndef COHORT_BASE_RPC_CLIENT_TLS_H_
#define COHORT_BASE_RPC_CLIENT_TLS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tls/tls_context.h"
#include "grpcpp/security/credentials.h"

namespace cohort {

// The paths in COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY and COHORT_TLS_CA.
TlsFiles TlsFilesOfEnvironment();

struct ClientTls {
  std::shared_ptr<TlsContext> framed_rpc;  // null: plain
  std::shared_ptr<grpc::ChannelCredentials> grpc;
};

// For connections to `address`: plain without files, and over a Unix socket. Connections with the
// same files share one context, which is loaded again when the files change.
// Errors: INVALID_ARGUMENT with the path and the reason.
absl::StatusOr<ClientTls> ClientTlsFor(absl::string_view address, const TlsFiles& files);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_CLIENT_TLS_H_
