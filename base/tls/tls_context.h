// The certificate of a program, its key, and the certificates that it trusts.
#ifndef COHORT_BASE_TLS_TLS_CONTEXT_H_
#define COHORT_BASE_TLS_TLS_CONTEXT_H_

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort {

// Paths of PEM files.
struct TlsFiles {
  std::string certificate;  // with the intermediate certificates behind it; a client may have none
  std::string key;
  // The certificates that sign those of peers. A server without them asks clients for none; a
  // client without them trusts those that the system trusts.
  std::string ca;
  // A server with `ca` also takes a client that has no certificate.
  bool client_certificate_optional = false;
  // The lists of revoked certificates, one of each CA that signs certificates of peers. A peer
  // whose CA has no list here, or one that is out of date, is refused.
  std::string crl;
  // Further files like `ca` of a server, each as FILE or DOMAIN=FILE (trust_domains.h).
  std::vector<std::string> client_cas;

  bool has_ca() const { return !ca.empty() || !client_cas.empty(); }
  bool any() const { return !certificate.empty() || !key.empty() || has_ca() || !crl.empty(); }
};

// kServer: of gRPC and framed RPC. kHttpServer: of HTTP/1.1.
// kPeer: either end of a connection between equals. Both show a certificate, which `ca` signs and
// which may be used by clients; names of hosts are not checked.
enum class TlsSide { kClient, kServer, kHttpServer, kPeer };

// TLS 1.2 and newer (kPeer: 1.3), without renegotiation or compression. kClient and kServer resume
// sessions of TLS 1.3 (resumption.h) until the files change. Thread-safe.
class TlsContext {
 public:
  // Errors: INVALID_ARGUMENT with the path and the reason.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(TlsFiles files, TlsSide side);

  // The context for a new connection. Reads the files again if one of them has changed, and looks
  // for that once a second at most. Files that cannot be used change nothing; last_error has the
  // reason until they can.
  std::shared_ptr<SSL_CTX> Current(Instant now);
  absl::Status last_error() const;
  // How many times new files were taken.
  int64_t reloads() const;

  // The first of a URI, a DNS name and the common name in the own certificate.
  std::string name() const;
  TlsSide side() const { return side_; }

 private:
  TlsContext(TlsFiles files, TlsSide side) : files_(std::move(files)), side_(side) {}

  const TlsFiles files_;
  const TlsSide side_;
  mutable Mutex mutex_;
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mutex_);
  std::string version_ ABSL_GUARDED_BY(mutex_);  // of the files when they were read
  std::string bad_version_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  Instant next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t reloads_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Takes what OpenSSL reports of this thread's last call, and forgets it.
std::string TakeTlsError();

}  // namespace cohort

#endif  // COHORT_BASE_TLS_TLS_CONTEXT_H_
