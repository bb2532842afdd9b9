// A framed RPC server for calls that compute: the thread of a connection reads a call, runs it and
// answers it, so that no other thread is woken.
//
//   framed_rpc::BlockingServer server(options, {"cohort.v1.WorkerService/RunCollective"}, handler);
//   server.Adopt(fd, peer);   // for each connection
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_BLOCKING_SERVER_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_BLOCKING_SERVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/peer_access.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/server_protocol.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/peer/listener_peer.h"
#include "base/threads/mutex.h"
#include "base/tls/stream_socket.h"
#include "base/unique_fd.h"

namespace cohort::framed_rpc {

// Thread-safe.
class BlockingHandler {
 public:
  virtual ~BlockingHandler() = default;
  // Runs one call on the thread of its connection, and appends the response to `*answer`. `method`
  // is a valid number. `access` has the rights of the client; null: there is no access policy. The
  // server keeps `*kept` until the answer is sent. If an allocation fails (std::bad_alloc), the
  // call gets RESOURCE_EXHAUSTED.
  virtual absl::Status Run(uint16_t method, absl::string_view request, PeerAccess* access,
                           std::string* answer, std::shared_ptr<const void>* kept) = 0;
};

struct BlockingServerOptions {
  int64_t max_message_bytes = 4 << 20;
  int max_connections = 0;
};

// A client has one call in flight on each connection. A connection that ends frees its descriptor
// at once. Thread-safe.
class BlockingServer {
 public:
  // `methods`: full names by their number on the wire (ServerProtocol). `handler` outlives it. A
  // connection is closed if there are `max_connections` already that have had a call for which
  // their clients had the rights, or if the system starts no thread for it. Its client then calls
  // by gRPC. A connection without such a call makes room for a new one, the oldest first. A client
  // without a role has at most kMaxWithoutRole connections for each address, of which the oldest
  // makes room, and its connection ends with the answer to its first denied call.
  static constexpr int kMaxWithoutRole = 16;
  BlockingServer(const BlockingServerOptions& options, std::vector<std::string> methods,
                 BlockingHandler& handler);
  // Like Stop with no grace.
  ~BlockingServer();

  // Takes a connection that begins with the framed RPC preface.
  void Adopt(int fd, ListenerPeer peer = {});
  // Reads no more calls. Running calls are answered, if they end and their clients take the answers
  // within `grace`. Waits for all threads: callers first end the operations that block calls.
  void Stop(absl::Duration grace);

 private:
  struct Connection {
    UniqueFd fd;
    ListenerPeer peer;
    std::atomic<bool> used{false};  // by a call that was not refused for want of rights
    bool without_role = false;      // at its begin
    bool closing = false;           // makes room
    bool done = false;
    std::thread thread;
  };

  void Serve(Connection& connection);
  // Serves calls until the connection fails or closes.
  void ServeCalls(const StreamSocket& socket, Connection& connection);
  // Answers one frame of a call. `error` is the reason why its body was not read; OK if it was
  // read. Returns false if the connection cannot be used any more.
  bool Answer(const StreamSocket& socket, Connection& connection, const Frame& frame,
              absl::Status error);
  // Whether there is room for a connection.
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the oldest connection of a client without a role at `address`, if there are
  // kMaxWithoutRole of them.
  void MakeRoomAt(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void End(Connection& connection);
  void JoinDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServerProtocol protocol_;
  BlockingHandler& handler_;
  const size_t max_connections_;
  Mutex mutex_;
  // A list: threads hold references to their entries.
  std::list<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Instant next_log_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_BLOCKING_SERVER_H_
