#include "tests/security/raw_tls_client.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "gtest/gtest.h"

namespace cohort::testing {

UniqueFd ConnectBlocking(const std::string& socket_path) {
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  socket_path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = {20, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

RawTlsClient::RawTlsClient(const std::string& socket_path, const TlsFiles& files)
    : fd_(ConnectBlocking(socket_path)),
      context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
      session_(SSL_new(context_.get()), SSL_free) {
  if (!files.certificate.empty()) {
    EXPECT_EQ(SSL_use_certificate_chain_file(session(), files.certificate.c_str()), 1);
    EXPECT_EQ(SSL_use_PrivateKey_file(session(), files.key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  SSL_set_fd(session(), fd_.get());
}

void RawTlsClient::AllowOldVersions() {
  SSL_set_security_level(session(), 0);
  SSL_set_min_proto_version(session(), TLS1_VERSION);
}

bool RawTlsClient::Handshake() {
  if (SSL_connect(session()) == 1) return true;
  error_ = TakeTlsError();
  return false;
}

std::string RawTlsClient::Ask(absl::string_view bytes) {
  size_t count = 0;
  char answer[4096];
  if (SSL_write_ex(session(), bytes.data(), bytes.size(), &count) == 1 &&
      SSL_read_ex(session(), answer, sizeof(answer), &count) == 1) {
    return std::string(answer, count);
  }
  error_ = TakeTlsError();
  return "";
}

}  // namespace cohort::testing
