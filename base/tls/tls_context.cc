#include "base/tls/tls_context.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file_stamp.h"
#include "base/status_macros.h"
#include "base/tls/peer_certificate.h"
#include "base/tls/resumption.h"
#include "base/tls/trust_domains.h"

namespace cohort {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);
// Forward secrecy and authenticated encryption. TLS 1.3 has no others.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
// TLS 1.3's, the fastest first.
constexpr char kCipherSuites[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// The most bytes of all certificates that a peer shows.
constexpr long kMaxCertificateBytes = 32 << 10;
// One read of the socket may bring several records.
constexpr size_t kReadAheadBytes = size_t{64} << 10;
// As the protocols' names stand in the handshake, with their lengths: gRPC's and framed RPC's.
constexpr unsigned char kProtocols[] = "\2h2\6cohort";
constexpr unsigned char kHttpProtocols[] = "\10http/1.1";
constexpr unsigned char kSessionContext[] = "cohort";

// OpenSSL frees its state when a process exits, and crashes threads that still use TLS then: ours
// and gRPC's. Its first initialisation decides that, so this one comes before main.
[[maybe_unused]] const int kNoCleanupAtExit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

absl::Status FileError(const char* what, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", path, ": ", TakeTlsError()));
}

bool IsServer(TlsSide side) { return side == TlsSide::kServer || side == TlsSide::kHttpServer; }

// The client names the protocols that it speaks; a client that names none of ours is not refused,
// because the first bytes after the handshake tell the protocol, too.
int SelectProtocol(SSL*, const unsigned char** chosen, unsigned char* size,
                   const unsigned char* offered, unsigned offered_size, void* protocols) {
  const auto* const ours = static_cast<const unsigned char*>(protocols);
  const auto ours_size = static_cast<unsigned>(std::strlen(static_cast<const char*>(protocols)));
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, ours, ours_size, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

std::vector<CaFile> CaFilesOf(const TlsFiles& files) {
  std::vector<CaFile> cas;
  if (!files.ca.empty()) cas.push_back({"", files.ca});
  for (const std::string& text : files.client_cas) cas.push_back(ParseCaFile(text));
  return cas;
}

absl::StatusOr<std::string> VersionOf(const TlsFiles& files) {
  std::vector<std::string> paths = {files.certificate, files.key, files.crl};
  for (CaFile& ca : CaFilesOf(files)) paths.push_back(std::move(ca.path));
  std::string version;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    COHORT_ASSIGN_OR_RETURN(const std::string stamp, FileStamp(path));
    absl::StrAppend(&version, stamp, " ");
  }
  return version;
}

absl::Status ReadFiles(const TlsFiles& files, TlsSide side, SSL_CTX* context) {
  if (!files.certificate.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
      return FileError("certificate", files.certificate);
    }
    if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
      return FileError("key", files.key);
    }
    if (SSL_CTX_check_private_key(context) != 1) {
      return FileError("the certificate does not belong to the key", files.key);
    }
  }
  const std::vector<CaFile> cas = CaFilesOf(files);
  STACK_OF(X509_NAME)* const names = sk_X509_NAME_new_null();
  SSL_CTX_set_client_CA_list(context, names);  // takes them
  for (const CaFile& ca : cas) {
    if (SSL_CTX_load_verify_locations(context, ca.path.c_str(), nullptr) != 1 ||
        (side != TlsSide::kClient &&
         SSL_add_file_cert_subjects_to_stack(names, ca.path.c_str()) != 1)) {
      return FileError("CA certificates", ca.path);
    }
  }
  if (const std::string bad = TrustDomains::Set(SSL_CTX_get_cert_store(context), cas);
      !bad.empty()) {
    return FileError("CA certificates", bad);
  }
  if (cas.empty() && side == TlsSide::kClient && SSL_CTX_set_default_verify_paths(context) != 1) {
    return FileError("CA certificates", "of the system");
  }
  if (!files.crl.empty()) {
    X509_STORE* const store = SSL_CTX_get_cert_store(context);
    X509_LOOKUP* const lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    if (lookup == nullptr || X509_load_crl_file(lookup, files.crl.c_str(), X509_FILETYPE_PEM) < 1) {
      return FileError("list of revoked certificates", files.crl);
    }
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> Make(const TlsFiles& files, TlsSide side) {
  ERR_clear_error();
  const bool server = IsServer(side);
  const bool peer = side == TlsSide::kPeer;
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(peer     ? TLS_method()
                                                     : server ? TLS_server_method()
                                                              : TLS_client_method()),
                                         SSL_CTX_free);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  SSL_CTX* const raw = context.get();
  // The ends of kPeer bind a proof to the connection, for which TLS 1.2 needs an extension.
  SSL_CTX_set_min_proto_version(raw, peer ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(raw, kCiphers);
  SSL_CTX_set_ciphersuites(raw, kCipherSuites);
  // The protocols above TLS notice an end in the middle. To OpenSSL it would be a fatal error,
  // after which it resumes no session.
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                               SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_max_cert_list(raw, kMaxCertificateBytes);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);
  if (side == TlsSide::kServer) ResumeSessionsOfClients(raw);
  if (side == TlsSide::kClient) ClientSessions::Enable(raw);
  SSL_CTX_set_session_id_context(raw, kSessionContext, sizeof(kSessionContext) - 1);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_default_read_buffer_len(raw, kReadAheadBytes);
  int verify = SSL_VERIFY_NONE;
  if (!server || files.has_ca()) verify = SSL_VERIFY_PEER;
  if (peer || (server && verify != 0 && !files.client_certificate_optional)) {
    verify |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  }
  SSL_CTX_set_verify(raw, verify, nullptr);
  if (peer) {
    SSL_CTX_set_purpose(raw, X509_PURPOSE_SSL_CLIENT);
  } else if (server) {
    const unsigned char* const protocols =
        side == TlsSide::kHttpServer ? kHttpProtocols : kProtocols;
    SSL_CTX_set_alpn_select_cb(raw, SelectProtocol, const_cast<unsigned char*>(protocols));
  } else {
    SSL_CTX_set_alpn_protos(raw, kProtocols + 3, sizeof(kProtocols) - 1 - 3);
  }
  const absl::Status read = ReadFiles(files, side, raw);
  if (!read.ok()) return read;
  return context;
}

}  // namespace

std::string TakeTlsError() {
  std::string text;
  while (const unsigned long error = ERR_get_error()) {
    const char* const reason = ERR_reason_error_string(error);
    const char* const system = ERR_SYSTEM_ERROR(error) ? std::strerror(ERR_GET_REASON(error)) : "";
    text = reason != nullptr ? reason : system;  // the last one is the one that the caller caused
  }
  return text.empty() ? "TLS failed" : text;
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(TlsFiles files, TlsSide side) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("a certificate needs a key, and a key needs a certificate");
  }
  if (IsServer(side) && files.certificate.empty()) {
    return absl::InvalidArgumentError("a server needs a certificate");
  }
  if (side == TlsSide::kPeer && (files.certificate.empty() || files.ca.empty())) {
    return absl::InvalidArgumentError("peers need a certificate and CA certificates");
  }
  std::unique_ptr<TlsContext> loaded(new TlsContext(std::move(files), side));
  absl::StatusOr<std::string> version = VersionOf(loaded->files_);
  if (!version.ok()) return version.status();
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = Make(loaded->files_, side);
  if (!context.ok()) return context.status();
  MutexLock lock(&loaded->mutex_);
  loaded->version_ = *std::move(version);
  loaded->context_ = *std::move(context);
  return loaded;
}

std::shared_ptr<SSL_CTX> TlsContext::Current(Instant now) {
  MutexLock lock(&mutex_);
  if (now < next_look_) return context_;
  next_look_ = now + kBetweenLooks;
  const absl::StatusOr<std::string> version = VersionOf(files_);
  if (!version.ok()) {
    last_error_ = version.status();
    return context_;
  }
  if (*version == version_ || *version == bad_version_) {
    if (*version == version_) last_error_ = absl::OkStatus();
    return context_;
  }
  absl::StatusOr<std::shared_ptr<SSL_CTX>> made = Make(files_, side_);
  last_error_ = made.status();
  if (!made.ok()) {
    bad_version_ = *version;
    return context_;
  }
  version_ = *version;
  bad_version_.clear();
  context_ = *std::move(made);
  ++reloads_;
  return context_;
}

absl::Status TlsContext::last_error() const {
  MutexLock lock(&mutex_);
  return last_error_;
}

std::string TlsContext::name() const {
  MutexLock lock(&mutex_);
  X509* const own = SSL_CTX_get0_certificate(context_.get());
  return own == nullptr ? "" : ReadCertificate(own).name();
}

int64_t TlsContext::reloads() const {
  MutexLock lock(&mutex_);
  return reloads_;
}

}  // namespace cohort
