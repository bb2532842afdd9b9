// A connected socket whose bytes go through TLS or not.
#ifndef COHORT_BASE_TLS_STREAM_SOCKET_H_
#define COHORT_BASE_TLS_STREAM_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/tls/tls_session.h"

namespace cohort {

// Receives and sends without blocking; results and errno are those of recv(2) and send(2). It does
// not own the descriptor.
struct StreamSocket {
  int fd = -1;
  std::shared_ptr<TlsSession> tls;  // null: plain

  // Fewer bytes than `size` are all there are now.
  ssize_t Receive(void* bytes, size_t size) const {
    return tls == nullptr ? recv(fd, bytes, size, MSG_DONTWAIT) : tls->Receive(bytes, size);
  }
  ssize_t Receive(absl::Span<const iovec> pieces) const {
    if (tls != nullptr) return tls->Receive(pieces);
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return recvmsg(fd, &message, MSG_DONTWAIT);
  }
  ssize_t Peek(void* bytes, size_t size) const {
    return tls == nullptr ? recv(fd, bytes, size, MSG_DONTWAIT | MSG_PEEK) : tls->Peek(bytes, size);
  }
  // Bytes that were not taken have to be sent again before others.
  ssize_t Send(absl::string_view bytes) const {
    if (tls != nullptr) return tls->Send(bytes);
    return send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  ssize_t Send(absl::Span<const iovec> pieces) const {
    if (tls != nullptr) return tls->Send(pieces);
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // Whether Receive has bytes although the socket is not readable.
  bool HasInput() const { return tls != nullptr && tls->HasInput(); }
};

}  // namespace cohort

#endif  // COHORT_BASE_TLS_STREAM_SOCKET_H_
