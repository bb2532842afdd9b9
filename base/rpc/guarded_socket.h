// Has the bytes of a connection that gRPC serves pass through an Http2Guard.
//
// gRPC owns the descriptor and offers no place to look at its bytes before it parses them. A relay
// would cost every call two more wake-ups and copies. So this library defines recvmsg and sendmsg
// for the whole program, in front of the C library's, which they call: for other descriptors they
// add one look into a table. docs/decisions.md says more.
//
// The library also keeps one connection from occupying gRPC's threads for long. It leaves bytes in
// the socket while the guard asks for a pause. It ends a connection with many streams by resetting
// a few streams at a time. gRPC waits for an edge of epoll meanwhile; ResumeSocket makes one. For
// that the library defines epoll_ctl, too: it needs to know how gRPC has registered the socket.
#ifndef COHORT_BASE_RPC_GUARDED_SOCKET_H_
#define COHORT_BASE_RPC_GUARDED_SOCKET_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/rpc/http2_guard.h"
#include "base/rpc/incoming_bytes.h"

namespace cohort {

// Names a socket for as long as the machine runs, which its descriptor's number does not; 0: `fd`
// is no socket.
uint64_t SocketCookie(int fd);

// What the reader of a connection and the one who accepted it share.
struct GuardedSocket {
  // The client has sent a complete request.
  std::atomic<bool> has_request{false};
  // The client's address has broken a limit a short while ago. Shared by all its connections.
  std::shared_ptr<const std::atomic<bool>> suspect;
  // Of all connections of the address; null: not counted.
  std::shared_ptr<IncomingBytes> incoming;
  // Once, on the thread that reads, when the connection is closed for what it sent.
  std::function<void(const absl::Status&)> on_offence;
  // Has ResumeSocket called at that time. False: it cannot, so reading must go on. Null: as false.
  // Must not call this library.
  std::function<bool(int fd, uint64_t cookie, Instant at)> resume_at;
};

// From now on, until the socket is closed. Before gRPC gets `fd`. Thread-safe.
void GuardSocket(int fd, const Http2Limits& limits, std::shared_ptr<GuardedSocket> socket);

// Frees what is kept for a socket that has been closed. Thread-safe.
void ForgetSocket(int fd, uint64_t cookie);

// Lets gRPC read again from a socket whose reading is paused. Thread-safe.
void ResumeSocket(int fd, uint64_t cookie);

// Gives back the incoming bytes that sockets charged which have been closed since. Thread-safe.
void ReclaimIncomingBytes();

// Ends the connection of a socket that another owns, unless it has been closed. Thread-safe.
void ShutDownSocket(int fd, uint64_t cookie);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_GUARDED_SOCKET_H_
