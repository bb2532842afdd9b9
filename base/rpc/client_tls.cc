#include "base/rpc/client_tls.h"

#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace cohort {
namespace {

constexpr unsigned kBetweenLooksS = 1;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Adds the token to each call.
class TokenMetadata final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenMetadata(std::shared_ptr<TokenFile> token) : token_(std::move(token)) {}
  bool IsBlocking() const override { return false; }
  const char* GetType() const override { return "cohort-token"; }
  grpc::string DebugString() override { return GetType(); }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace("authorization",
                      absl::StrCat("Bearer ", token_->Current(Clock::Steady().Now())));
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<TokenFile> token_;
};

grpc::experimental::TlsChannelCredentialsOptions GrpcOptions(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  // Its thread looks at the files.
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.ca, kBetweenLooksS));
  if (!files.ca.empty()) options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  return options;
}

std::shared_ptr<grpc::ChannelCredentials> GrpcCredentials(const TlsFiles& files,
                                                          std::shared_ptr<TokenFile> token) {
  std::shared_ptr<grpc::ChannelCredentials> tls =
      grpc::experimental::TlsCredentials(GrpcOptions(files));
  if (token == nullptr) return tls;
  return grpc::CompositeChannelCredentials(
      tls, grpc::MetadataCredentialsFromPlugin(std::make_unique<TokenMetadata>(std::move(token))));
}

}  // namespace

TlsFiles TlsFilesOfEnvironment() {
  return {Variable("COHORT_TLS_CERTIFICATE"), Variable("COHORT_TLS_KEY"),
          Variable("COHORT_TLS_CA")};
}

std::string TokenFileOfEnvironment() { return Variable("COHORT_TOKEN_FILE"); }

absl::StatusOr<ClientTls> ClientTlsFor(absl::string_view address, const TlsFiles& files,
                                       const std::string& token_file) {
  const bool is_unix = absl::StartsWith(address, "unix:");
  if (!files.any() && !is_unix && !token_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("token file ", token_file,
                     ": a token is sent over TLS alone: expected COHORT_TLS_CA, the "
                     "CA of the server's certificate, for ",
                     address));
  }
  if (!files.any() || is_unix) {
    return ClientTls{nullptr, nullptr, grpc::InsecureChannelCredentials()};
  }
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  static Mutex mutex;
  static auto* const loaded = new std::map<Key, ClientTls>;
  MutexLock lock(&mutex);
  ClientTls& found = (*loaded)[Key(files.certificate, files.key, files.ca, token_file)];
  if (found.grpc == nullptr) {
    COHORT_ASSIGN_OR_RETURN(found.framed_rpc, TlsContext::Load(files, TlsSide::kClient));
    if (!token_file.empty()) {
      COHORT_ASSIGN_OR_RETURN(found.token, TokenFile::Load(token_file));
    }
    found.grpc = GrpcCredentials(files, found.token);
  }
  return found;
}

std::shared_ptr<grpc::ChannelCredentials> PeerCredentialsFor(const TlsFiles& files) {
  using Key = std::tuple<std::string, std::string, std::string>;
  static Mutex mutex;
  static auto* const made = new std::map<Key, std::shared_ptr<grpc::ChannelCredentials>>;
  MutexLock lock(&mutex);
  std::shared_ptr<grpc::ChannelCredentials>& found =
      (*made)[Key(files.certificate, files.key, files.ca)];
  if (found == nullptr) {
    grpc::experimental::TlsChannelCredentialsOptions options = GrpcOptions(files);
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
    found = grpc::experimental::TlsCredentials(options);
  }
  return found;
}

absl::StatusOr<ClientTls> ClientTlsOfEnvironment(absl::string_view address) {
  return ClientTlsFor(address, TlsFilesOfEnvironment(), TokenFileOfEnvironment());
}

}  // namespace cohort
