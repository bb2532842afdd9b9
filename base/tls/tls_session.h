// One TLS connection over a socket that does not block.
#ifndef COHORT_BASE_TLS_TLS_SESSION_H_
#define COHORT_BASE_TLS_TLS_SESSION_H_

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/threads/mutex.h"
#include "base/tls/peer_certificate.h"

namespace cohort {

// Thread-safe. Receive, Peek and Send return what recv(2) and send(2) return for a socket that does
// not block, errno included. The owner of the descriptor keeps it open as long as it uses this.
class TlsSession {
 public:
  enum class Progress {
    kDone,
    kWantInput,   // call again when the socket is readable
    kWantOutput,  // call again when it is writable
    kFailed,
  };

  // The server's end.
  static std::shared_ptr<TlsSession> Accept(std::shared_ptr<SSL_CTX> context, int fd);
  // The client's end. The server's certificate must be valid for `host`, a name or an address.
  static std::shared_ptr<TlsSession> Connect(std::shared_ptr<SSL_CTX> context, int fd,
                                             const std::string& host);
  // The client's end. The server may have any name; its certificate must be one that the context
  // trusts.
  static std::shared_ptr<TlsSession> ConnectToAny(std::shared_ptr<SSL_CTX> context, int fd);
  ~TlsSession();

  // The key for sending changes after this many bytes, with TLS 1.3. For tests.
  void ChangeKeyEvery(uint64_t bytes);

  Progress Handshake();
  // The reason of a failure, which names a refused certificate.
  // UNAUTHENTICATED: one side refused the certificate of the other, or its lack.
  // UNAVAILABLE: the connection broke. FAILED_PRECONDITION: another error of the protocol.
  absl::Status error() const;
  // The peer's certificate, once the handshake is done; empty: it has shown none.
  const PeerCertificate& peer() const { return peer_; }
  // Whether the files of `context`, read after the handshake, still admit the peer's certificate.
  // UNAUTHENTICATED: they do not. Takes some 0.2 ms.
  absl::Status VerifyAgain(SSL_CTX& context) const;
  // 32 bytes that only the two ends of this connection know (tls-exporter of RFC 9266). The
  // handshake is done.
  std::string ChannelBinding() const;
  bool uses(const SSL_CTX& context) const { return context_.get() == &context; }
  // Whether the handshake has resumed a session.
  bool resumed() const;

  // Fewer bytes than `size` are all there are now.
  ssize_t Receive(void* bytes, size_t size);
  // The same for several pieces of memory, one after the other.
  ssize_t Receive(absl::Span<const iovec> pieces);
  // However they were cut into records.
  ssize_t Peek(void* bytes, size_t size);
  ssize_t Send(absl::string_view bytes);
  // Puts small pieces together.
  ssize_t Send(absl::Span<const iovec> pieces);
  // Whether Receive may have bytes although the socket is not readable: it has not yet returned
  // fewer than it was asked for since the last bytes came.
  bool HasInput() const;

 private:
  // AES-GCM may encrypt 360 GiB with one key (RFC 8446, 5.5).
  static constexpr uint64_t kBytesOfKey = uint64_t{64} << 30;

  // The socket, as OpenSSL's callbacks see it.
  struct Socket {
    int fd;
    // It had fewer bytes than it was asked for: a second question would cost a system call.
    bool dry = false;
    bool ended = false;     // the peer has closed it
    int receive_error = 0;  // errno of the calls that failed; 0: none has
    int send_error = 0;
    uint64_t received = 0;     // bytes that the peer sent by this connection, without TLS's own
    uint64_t key_changes = 0;  // that the peer has made
    bool changes_keys_too_often() const;
  };
  struct Free {
    void operator()(SSL* session) const { SSL_free(session); }
  };

  TlsSession(std::shared_ptr<SSL_CTX> context, int fd, std::string host = "");
  static int ReadSocket(BIO* bio, char* bytes, int size);
  static int WriteSocket(BIO* bio, const char* bytes, int size);
  static void OnMessage(int sent, int version, int kind, const void* bytes, size_t size, SSL*,
                        void* socket);
  static const BIO_METHOD* SocketMethod();
  // The handshake is done. UNAUTHENTICATED: it resumed a session of an expired certificate.
  absl::Status OnHandshakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailure(int result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From `peeked_` first.
  ssize_t ReceiveLocked(void* bytes, size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ssize_t ReceiveRecords(void* bytes, size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends one record at most.
  ssize_t SendRecord(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangeKeyInTime(size_t sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<SSL_CTX> context_;
  const std::string host_;  // of a client's connection; empty: any
  mutable Mutex mutex_;
  Socket socket_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<SSL, Free> session_ ABSL_PT_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);  // why OpenSSL refuses a certificate
  uint64_t bytes_of_key_ ABSL_GUARDED_BY(mutex_) = kBytesOfKey;
  uint64_t sent_by_key_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes that the present key encrypted
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  std::string peeked_ ABSL_GUARDED_BY(mutex_);  // not yet received
  PeerCertificate peer_;                        // written by the handshake
};

}  // namespace cohort

#endif  // COHORT_BASE_TLS_TLS_SESSION_H_
