// One file, though long: the handshake, receiving and sending share one session of OpenSSL.
#include "base/tls/tls_session.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/tls/resumption.h"
#include "base/tls/tls_context.h"
#include "base/tls/trust_domains.h"

namespace cohort {
namespace {

// The content of a TLS record.
constexpr size_t kRecordBytes = size_t{16} << 10;
// The most certificates of a client whose session a server keeps. The CA's is not one of them.
constexpr int kMaxKeptCertificates = 4;
// A peer may change its key so often, and once more with so many bytes that it has sent. OpenSSL
// reads such changes, which cost more time than other bytes, without a return in between.
constexpr uint64_t kKeyChanges = 32;
constexpr uint64_t kBytesOfKeyChange = uint64_t{64} << 10;

long ControlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

bool IsAddress(const std::string& host) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

// Clears the errors of this thread. It seldom has some, and a look costs less than OpenSSL's
// function.
void ForgetErrors() {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

ssize_t Fail(int error) {
  errno = error;
  return -1;
}

// An alert that says that the certificate of this side, or its lack, was refused.
bool RefusesCertificate(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_NO_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return ERR_GET_LIB(error) == ERR_LIB_SSL;
    default:
      return false;
  }
}

absl::Status RefusedCertificate(absl::string_view why, absl::string_view name) {
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate of the peer is refused: ", why, " (of ", name, ")"));
}

// Refuses certificates of CAs of other trust domains. Notes why a certificate is refused.
int OnVerified(int good, X509_STORE_CTX* store) {
  auto* const session =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  // A session keeps all certificates of the peer.
  if (sk_X509_num(X509_STORE_CTX_get0_untrusted(store)) > kMaxKeptCertificates) {
    SSL_set_num_tickets(session, 0);
  }
  std::string why;
  if (good == 1 && X509_STORE_CTX_get_error_depth(store) == 0) why = TrustDomains::Refusal(store);
  X509* const certificate = X509_STORE_CTX_get_current_cert(store);
  if (good == 1 && why.empty()) return 1;
  if (certificate == nullptr) return 0;
  if (good == 1) {
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
  } else {
    why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(store));
  }
  *static_cast<absl::Status*>(SSL_get_app_data(session)) =
      RefusedCertificate(why, ReadCertificate(certificate).name());
  return 0;
}

}  // namespace

// OpenSSL's own functions for sockets raise SIGPIPE.
int TlsSession::WriteSocket(BIO* bio, const char* bytes, int size) {
  Socket& socket = *static_cast<Socket*>(BIO_get_data(bio));
  const ssize_t sent =
      send(socket.fd, bytes, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  BIO_clear_retry_flags(bio);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_write(bio);
  } else if (sent < 0) {
    socket.send_error = errno;
  }
  return static_cast<int>(sent);
}

void TlsSession::OnMessage(int sent, int, int kind, const void* bytes, size_t size, SSL*,
                           void* socket) {
  if (sent == 0 && kind == SSL3_RT_HANDSHAKE && size > 0 &&
      *static_cast<const unsigned char*>(bytes) == SSL3_MT_KEY_UPDATE) {
    ++static_cast<Socket*>(socket)->key_changes;
  }
}

bool TlsSession::Socket::changes_keys_too_often() const {
  return key_changes > kKeyChanges + received / kBytesOfKeyChange;
}

int TlsSession::ReadSocket(BIO* bio, char* bytes, int size) {
  Socket& socket = *static_cast<Socket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (socket.changes_keys_too_often()) return -1;
  if (socket.dry) {
    BIO_set_retry_read(bio);
    return -1;
  }
  const ssize_t count = recv(socket.fd, bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_read(bio);
  } else if (count < 0) {
    socket.receive_error = errno;
  }
  if (count == 0) {
    socket.ended = true;
    BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  }
  socket.dry = count > 0 && count < size;
  return static_cast<int>(count);
}

const BIO_METHOD* TlsSession::SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(made, WriteSocket);
    BIO_meth_set_read(made, ReadSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

void TlsSession::BeginCall() {
  ForgetErrors();
  socket_.dry = false;
}

TlsSession::TlsSession(std::shared_ptr<SSL_CTX> context, int fd, std::string host)
    : context_(std::move(context)),
      host_(std::move(host)),
      socket_{fd},
      session_(SSL_new(context_.get())) {
  MutexLock lock(&mutex_);
  BIO* const socket = session_ == nullptr ? nullptr : BIO_new(SocketMethod());
  if (socket == nullptr) {
    error_ = absl::ResourceExhaustedError("no memory for TLS");
    return;
  }
  BIO_set_data(socket, &socket_);
  BIO_set_init(socket, 1);
  SSL_set_app_data(session_.get(), &refused_);
  SSL_set_verify(session_.get(), SSL_get_verify_mode(session_.get()), OnVerified);
  SSL_set_msg_callback(session_.get(), OnMessage);
  SSL_set_msg_callback_arg(session_.get(), &socket_);
  SSL_set_bio(session_.get(), socket, socket);  // takes it
}

TlsSession::~TlsSession() {
  MutexLock lock(&mutex_);
  // Most connections end without a goodbye. OpenSSL would not resume their sessions otherwise.
  if (session_ != nullptr && error_.ok()) {
    SSL_set_shutdown(session_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  }
}

void TlsSession::ChangeKeyEvery(uint64_t bytes) {
  MutexLock lock(&mutex_);
  bytes_of_key_ = bytes;
}

std::shared_ptr<TlsSession> TlsSession::Accept(std::shared_ptr<SSL_CTX> context, int fd) {
  std::shared_ptr<TlsSession> session(new TlsSession(std::move(context), fd));
  MutexLock lock(&session->mutex_);
  if (session->error_.ok()) SSL_set_accept_state(session->session_.get());
  return session;
}

std::shared_ptr<TlsSession> TlsSession::Connect(std::shared_ptr<SSL_CTX> context, int fd,
                                                const std::string& host) {
  std::shared_ptr<TlsSession> session(new TlsSession(std::move(context), fd, host));
  MutexLock lock(&session->mutex_);
  if (!session->error_.ok()) return session;
  SSL* const raw = session->session_.get();
  SSL_set_connect_state(raw);
  bool named = false;
  if (IsAddress(host)) {
    named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(raw), host.c_str()) == 1;
  } else {
    // A common name does not count as a host: clients may often choose their own.
    SSL_set_hostflags(raw,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    named = !host.empty() && SSL_set1_host(raw, host.c_str()) == 1 &&
            SSL_set_tlsext_host_name(raw, host.c_str()) == 1;
  }
  if (!named) {
    session->error_ =
        absl::InvalidArgumentError(absl::StrCat("no certificate can name the host '", host, "'"));
    return session;
  }
  if (ClientSessions* const sessions = ClientSessions::Of(session->context_.get())) {
    sessions->Resume(&session->host_, raw);
  }
  return session;
}

std::shared_ptr<TlsSession> TlsSession::ConnectToAny(std::shared_ptr<SSL_CTX> context, int fd) {
  std::shared_ptr<TlsSession> session(new TlsSession(std::move(context), fd));
  MutexLock lock(&session->mutex_);
  if (session->error_.ok()) SSL_set_connect_state(session->session_.get());
  return session;
}

TlsSession::Progress TlsSession::Handshake() {
  MutexLock lock(&mutex_);
  if (!error_.ok()) return Progress::kFailed;
  BeginCall();
  const int result = SSL_do_handshake(session_.get());
  if (result == 1) {
    error_ = OnHandshakeDone();
    return error_.ok() ? Progress::kDone : Progress::kFailed;
  }
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      // The client keeps the session that it has. A new one would take the place of another
      // client's.
      if (SSL_session_reused(session_.get()) == 1) SSL_set_num_tickets(session_.get(), 0);
      return Progress::kWantInput;
    case SSL_ERROR_WANT_WRITE:
      return Progress::kWantOutput;
    default:
      NoteFailure(result);
      return Progress::kFailed;
  }
}

absl::Status TlsSession::OnHandshakeDone() {
  SSL* const raw = session_.get();
  if (SSL_version(raw) < TLS1_3_VERSION) {
    SSL_CTX_remove_session(context_.get(), SSL_get_session(raw));
  }
  X509* const certificate = SSL_get0_peer_certificate(raw);
  if (certificate == nullptr) return absl::OkStatus();
  peer_ = ReadCertificate(certificate);
  if (const auto* const domains = TrustDomains::Of(SSL_CTX_get_cert_store(context_.get()))) {
    domains->LimitNames(&peer_);
  }
  if (SSL_session_reused(raw) == 1 && X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) {
    return RefusedCertificate(X509_verify_cert_error_string(X509_V_ERR_CERT_HAS_EXPIRED),
                              peer_.name());
  }
  // A resumed session has only the certificates that the peer had sent.
  STACK_OF(X509)* chain = SSL_get0_verified_chain(raw);
  if (chain == nullptr) chain = SSL_get_peer_cert_chain(raw);
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    peer_.not_after = std::min(peer_.not_after, EndOfCertificate(sk_X509_value(chain, i)));
  }
  return absl::OkStatus();
}

absl::Status TlsSession::VerifyAgain(SSL_CTX& context) const {
  MutexLock lock(&mutex_);
  SSL* const raw = session_.get();
  X509* const certificate = SSL_get0_peer_certificate(raw);
  if (certificate == nullptr) return absl::OkStatus();
  const std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> check(X509_STORE_CTX_new(),
                                                                         X509_STORE_CTX_free);
  const bool server = SSL_is_server(raw) == 1;
  if (check == nullptr ||
      X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(&context), certificate,
                          SSL_get_peer_cert_chain(raw)) != 1 ||
      X509_STORE_CTX_set_default(check.get(), server ? "ssl_client" : "ssl_server") != 1) {
    return absl::ResourceExhaustedError("no memory for TLS");
  }
  // The end of a certificate is known without another look: PeerCertificate::not_after.
  X509_STORE_CTX_set_flags(check.get(), X509_V_FLAG_NO_CHECK_TIME);
  const bool verified = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  const std::string why =
      verified ? TrustDomains::Refusal(check.get())
               : X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get()));
  return why.empty() ? absl::OkStatus() : RefusedCertificate(why, peer_.name());
}

std::string TlsSession::ChannelBinding() const {
  constexpr absl::string_view kLabel = "EXPORTER-Channel-Binding";
  MutexLock lock(&mutex_);
  std::string bytes(32, '\0');
  const int done = SSL_export_keying_material(
      session_.get(), reinterpret_cast<unsigned char*>(&bytes[0]), bytes.size(), kLabel.data(),
      kLabel.size(), reinterpret_cast<const unsigned char*>(""), 0, 1);
  // It fails for want of memory alone. Two random values make no connection.
  if (done != 1) RAND_bytes(reinterpret_cast<unsigned char*>(&bytes[0]), 32);
  return bytes;
}

bool TlsSession::resumed() const {
  MutexLock lock(&mutex_);
  return SSL_session_reused(session_.get()) == 1;
}

void TlsSession::NoteFailure(int result) {
  const int kind = SSL_get_error(session_.get(), result);
  const long verified = SSL_get_verify_result(session_.get());
  const unsigned long last = ERR_peek_last_error();
  const std::string text = TakeTlsError();
  if (socket_.changes_keys_too_often()) {
    error_ = absl::FailedPreconditionError("the peer changes its key too often");
  } else if (verified != X509_V_OK) {
    error_ =
        refused_.ok() ? RefusedCertificate(X509_verify_cert_error_string(verified), "") : refused_;
  } else if (RefusesCertificate(last)) {
    error_ = absl::UnauthenticatedError(text);
  } else if (kind == SSL_ERROR_SYSCALL || kind == SSL_ERROR_ZERO_RETURN ||
             (last == 0 && socket_.ended)) {
    // After an end, OpenSSL sends an alert, which fails.
    const int error = socket_.receive_error != 0 ? socket_.receive_error : socket_.send_error;
    error_ = absl::UnavailableError(socket_.ended || error == 0 ? "the peer closed the connection"
                                                                : std::strerror(error));
  } else {
    error_ = absl::FailedPreconditionError(text);
  }
}

absl::Status TlsSession::error() const {
  MutexLock lock(&mutex_);
  return error_;
}

ssize_t TlsSession::Receive(void* bytes, size_t size) {
  MutexLock lock(&mutex_);
  BeginCall();
  return ReceiveLocked(bytes, size);
}

ssize_t TlsSession::Receive(absl::Span<const iovec> pieces) {
  MutexLock lock(&mutex_);
  BeginCall();
  ssize_t total = 0;
  for (const iovec& piece : pieces) {
    if (piece.iov_len == 0) continue;
    const ssize_t got = ReceiveLocked(piece.iov_base, piece.iov_len);
    if (got <= 0) return total > 0 ? total : got;  // the same happens at the next call
    total += got;
    if (static_cast<size_t>(got) < piece.iov_len) break;
  }
  return total;
}

ssize_t TlsSession::ReceiveLocked(void* bytes, size_t size) {
  if (peeked_.empty()) return ReceiveRecords(bytes, size);
  const size_t seen = peeked_.copy(static_cast<char*>(bytes), size);
  peeked_.erase(0, seen);
  if (seen == size) return static_cast<ssize_t>(seen);
  const ssize_t more = ReceiveRecords(static_cast<char*>(bytes) + seen, size - seen);
  return static_cast<ssize_t>(seen) + std::max<ssize_t>(more, 0);  // an error comes again
}

ssize_t TlsSession::ReceiveRecords(void* bytes, size_t size) {
  size_t total = 0;
  while (total < size) {
    ForgetErrors();
    size_t count = 0;
    const int result =
        SSL_read_ex(session_.get(), static_cast<char*>(bytes) + total, size - total, &count);
    if (result == 1) {
      total += count;
      socket_.received += count;
      if (socket_.dry && SSL_has_pending(session_.get()) == 0) break;
      continue;
    }
    drained_ = true;
    if (total > 0) return static_cast<ssize_t>(total);  // the same happens at the next call
    switch (SSL_get_error(session_.get(), result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return Fail(EAGAIN);
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      default:
        if (error_.ok()) NoteFailure(result);
        // A peer that was killed has not said goodbye.
        if (socket_.receive_error != 0) return Fail(socket_.receive_error);
        return absl::IsUnavailable(error_) ? 0 : Fail(ECONNRESET);
    }
  }
  drained_ = total < size;
  return static_cast<ssize_t>(total);
}

ssize_t TlsSession::Peek(void* bytes, size_t size) {
  MutexLock lock(&mutex_);
  BeginCall();
  if (peeked_.size() < size) {
    std::string more(size - peeked_.size(), '\0');
    const ssize_t count = ReceiveRecords(&more[0], more.size());
    if (count > 0) peeked_.append(more, 0, static_cast<size_t>(count));
    if (peeked_.empty()) return count;
  }
  return static_cast<ssize_t>(peeked_.copy(static_cast<char*>(bytes), size));
}

ssize_t TlsSession::SendRecord(absl::string_view bytes) {
  BeginCall();
  size_t sent = 0;
  const int result = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &sent);
  if (result == 1) {
    ChangeKeyInTime(sent);
    return static_cast<ssize_t>(sent);
  }
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return Fail(EAGAIN);
    default:
      if (error_.ok()) NoteFailure(result);
      return Fail(socket_.send_error != 0 ? socket_.send_error : EPIPE);
  }
}

void TlsSession::ChangeKeyInTime(size_t sent) {
  sent_by_key_ += sent;
  if (sent_by_key_ < bytes_of_key_ || SSL_version(session_.get()) < TLS1_3_VERSION) return;
  // The next call of SSL_write sends the message; the peer keeps its own key.
  if (SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) sent_by_key_ = 0;
}

ssize_t TlsSession::Send(absl::string_view bytes) {
  MutexLock lock(&mutex_);
  size_t total = 0;
  while (total < bytes.size()) {
    const ssize_t sent = SendRecord(bytes.substr(total));
    if (sent < 0) return total > 0 ? static_cast<ssize_t>(total) : sent;
    total += static_cast<size_t>(sent);
  }
  return static_cast<ssize_t>(total);
}

ssize_t TlsSession::Send(absl::Span<const iovec> pieces) {
  // A record for each large piece, and one for small pieces that follow each other.
  char record[kRecordBytes];
  size_t filled = 0;
  size_t total = 0;
  size_t next = 0;
  size_t skip = 0;  // bytes of the next piece that are done
  MutexLock lock(&mutex_);
  while (true) {
    absl::string_view bytes;
    filled = 0;
    size_t at = next;
    size_t from = skip;
    while (at < pieces.size() && filled < kRecordBytes) {
      const size_t left = pieces[at].iov_len - from;
      const char* const start = static_cast<const char*>(pieces[at].iov_base) + from;
      if (filled == 0 && left >= kRecordBytes) {
        bytes = absl::string_view(start, kRecordBytes);
        break;
      }
      const size_t take = std::min(left, kRecordBytes - filled);
      std::memcpy(record + filled, start, take);
      filled += take;
      from += take;
      if (from == pieces[at].iov_len) {
        ++at;
        from = 0;
      }
    }
    if (bytes.empty()) bytes = absl::string_view(record, filled);
    if (bytes.empty()) return static_cast<ssize_t>(total);
    const ssize_t sent = SendRecord(bytes);
    if (sent < 0) return total > 0 ? static_cast<ssize_t>(total) : sent;
    total += static_cast<size_t>(sent);
    for (size_t left = static_cast<size_t>(sent); left > 0;) {
      const size_t take = std::min(left, pieces[next].iov_len - skip);
      left -= take;
      skip += take;
      if (skip == pieces[next].iov_len) {
        ++next;
        skip = 0;
      }
    }
  }
}

bool TlsSession::HasInput() const {
  MutexLock lock(&mutex_);
  return !peeked_.empty() || (!drained_ && SSL_has_pending(session_.get()) == 1);
}

}  // namespace cohort
