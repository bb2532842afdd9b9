// A TLS client of OpenSSL with settings that Cohort's own clients do not have.
#ifndef COHORT_TESTS_SECURITY_RAW_TLS_CLIENT_H_
#define COHORT_TESTS_SECURITY_RAW_TLS_CLIENT_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/tls/tls_context.h"
#include "base/unique_fd.h"

namespace cohort::testing {

// Blocks, for at most 20 seconds at each step. It checks no certificate of the server.
class RawTlsClient {
 public:
  // `socket_path`: of the server. `files`: the client's; without a certificate it shows none.
  RawTlsClient(const std::string& socket_path, const TlsFiles& files);

  // For settings before Handshake.
  SSL* session() { return session_.get(); }
  // Settings of TLS 1.1 and older, which OpenSSL refuses by default.
  void AllowOldVersions();
  // Whether it succeeded. With TLS 1.3 the server may refuse the client afterwards.
  bool Handshake();
  // Sends `bytes` and returns the first answer; empty: the server closed, or sent an alert.
  std::string Ask(absl::string_view bytes);
  // Why the last step failed, in OpenSSL's words.
  const std::string& error() const { return error_; }
  int fd() const { return fd_.get(); }

 private:
  const UniqueFd fd_;
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  const std::unique_ptr<SSL, void (*)(SSL*)> session_;
  std::string error_;
};

// A socket that is connected to a Unix socket, and reads for at most 20 seconds.
UniqueFd ConnectBlocking(const std::string& socket_path);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_SECURITY_RAW_TLS_CLIENT_H_
