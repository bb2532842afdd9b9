#include "base/rpc/client_tls.h"

#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace cohort {
namespace {

constexpr unsigned kBetweenLooksS = 1;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::shared_ptr<grpc::ChannelCredentials> GrpcCredentials(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  // Its thread looks at the files.
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.ca, kBetweenLooksS));
  if (!files.ca.empty()) options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

TlsFiles TlsFilesOfEnvironment() {
  return {Variable("COHORT_TLS_CERTIFICATE"), Variable("COHORT_TLS_KEY"),
          Variable("COHORT_TLS_CA")};
}

absl::StatusOr<ClientTls> ClientTlsFor(absl::string_view address, const TlsFiles& files) {
  if (!files.any() || absl::StartsWith(address, "unix:")) {
    return ClientTls{nullptr, grpc::InsecureChannelCredentials()};
  }
  using Key = std::tuple<std::string, std::string, std::string>;
  static Mutex mutex;
  static auto* const loaded = new std::map<Key, ClientTls>;
  MutexLock lock(&mutex);
  ClientTls& found = (*loaded)[Key(files.certificate, files.key, files.ca)];
  if (found.grpc == nullptr) {
    COHORT_ASSIGN_OR_RETURN(found.framed_rpc, TlsContext::Load(files, TlsSide::kClient));
    found.grpc = GrpcCredentials(files);
  }
  return found;
}

}  // namespace cohort
