// Has the bytes of a connection that gRPC serves pass through an Http2Guard.
//
// gRPC owns the descriptor and offers no place to look at its bytes before it parses them. A relay
// would cost every call two more wake-ups and copies. So this library defines recvmsg and sendmsg
// for the whole program, in front of the C library's, which they call: for other descriptors they
// add one look into a table. docs/decisions.md says more.
//
// The library also keeps one connection from occupying gRPC's threads for long. It leaves bytes in
// the socket while the guard or PeerAccess asks for a pause. It ends a connection with many streams
// by resetting a few streams at a time. gRPC waits for an edge of epoll meanwhile; ResumeSocket
// makes one. For that the library defines epoll_ctl, too: it needs to know how gRPC has registered
// the socket.
#ifndef COHORT_BASE_RPC_LISTENER_GUARDED_SOCKET_H_
#define COHORT_BASE_RPC_LISTENER_GUARDED_SOCKET_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/access/peer_access.h"
#include "base/clock.h"
#include "base/rpc/listener/http2_guard.h"
#include "base/rpc/listener/incomplete_request_bytes.h"
#include "base/tls/tls_session.h"

namespace cohort {

// Returns a number that identifies the socket as long as the machine runs. (The descriptor's number
// is used again.) 0: `fd` is not a socket.
uint64_t SocketCookie(int fd);

// The state that the reader of a connection shares with the listener that accepted it.
struct GuardedSocket {
  // The client has sent a complete request.
  std::atomic<bool> has_request{false};
  // The client's address has broken a limit recently. All its connections share it.
  std::shared_ptr<const std::atomic<bool>> suspect;
  // The incoming bytes of all connections of the address; null: not counted.
  std::shared_ptr<IncompleteRequestBytes> incoming;
  // Carries the bytes; null: the connection is plain.
  std::shared_ptr<TlsSession> tls;
  // The client's rights; null: the server has no access policy.
  std::shared_ptr<PeerAccess> access;
  // Called once, on the thread that reads, if the guard closes the connection for the bytes that it
  // sent.
  std::function<void(const absl::Status&)> on_offence;
  // Schedules a call of ResumeSocket at `at`. False, or null: it cannot, so reading goes on. It
  // must not call this library.
  std::function<bool(int fd, uint64_t cookie, Instant at)> resume_at;
};

// Guards the socket until it is closed. Call it before gRPC gets `fd`. Thread-safe.
void GuardSocket(int fd, const Http2Limits& limits, std::shared_ptr<GuardedSocket> socket);

// The rights of the client of a guarded socket, by the name that gRPC has for the peer of a call.
// With rights, that is the name of the socket, and no address: this library defines getpeername for
// it. Null: there is no such socket, or it has none. Thread-safe.
std::shared_ptr<PeerAccess> AccessOfGrpcPeer(const std::string& peer);

// Frees the memory of a guarded socket that has been closed. Thread-safe.
void ForgetSocket(int fd, uint64_t cookie);

// Lets gRPC read again from a socket whose reading is paused. Thread-safe.
void ResumeSocket(int fd, uint64_t cookie);

// Gives back the incoming bytes of guarded sockets that have been closed. Thread-safe.
void ReclaimIncomingBytes();

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTENER_GUARDED_SOCKET_H_
