#include "base/rpc/client_tls.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "base/threads/mutex.h"
#include "base/tls/peer_certificate.h"
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

// Admits certificates with one name.
class NameVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit NameVerifier(std::string name) : name_(std::move(name)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    const grpc::string_ref pem = request->peer_cert();
    const std::unique_ptr<BIO, int (*)(BIO*)> bytes(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr), X509_free);
    const std::string found =
        certificate == nullptr ? "" : ReadCertificate(certificate.get()).name();
    if (certificate == nullptr || found != name_) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             absl::StrCat("the certificate is of ", Printable(found),
                                          ", expected ", Printable(name_)));
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string name_;
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

std::shared_ptr<grpc::ChannelCredentials> PeerCredentialsFor(const TlsFiles& files,
                                                             const std::string& name) {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  static Mutex mutex;
  static auto* const made = new std::map<Key, std::shared_ptr<grpc::ChannelCredentials>>;
  MutexLock lock(&mutex);
  std::shared_ptr<grpc::ChannelCredentials>& found =
      (*made)[Key(files.certificate, files.key, files.ca, name)];
  if (found == nullptr) {
    grpc::experimental::TlsChannelCredentialsOptions options = GrpcOptions(files);
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<NameVerifier>(name));
    found = grpc::experimental::TlsCredentials(options);
  }
  return found;
}

absl::StatusOr<ClientTls> ClientTlsOfEnvironment(absl::string_view address) {
  return ClientTlsFor(address, TlsFilesOfEnvironment(), TokenFileOfEnvironment());
}

}  // namespace cohort
