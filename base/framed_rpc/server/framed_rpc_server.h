// A framed RPC server for calls that wait: few threads serve all connections, and a call in flight
// holds no thread.
//
//   framed_rpc::Server server(options, {"cohort.v1.StoreService/Put"}, handler);
//   server.Adopt(fd, peer);   // for each connection
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_FRAMED_RPC_SERVER_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_FRAMED_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/framed_rpc/server/call_handler.h"
#include "base/framed_rpc/server/call_rate_guard.h"
#include "base/framed_rpc/server/connection_loops.h"
#include "base/framed_rpc/server/server_connection.h"
#include "base/port/peer/listener_peer.h"

namespace cohort::framed_rpc {

struct ServerOptions {
  int threads = 1;
  int max_message_bytes = 4 << 20;
  int max_concurrent_calls = 0;  // per connection; 0: no limit
  CallRateLimits limits;
};

// Thread-safe.
class Server {
 public:
  // `methods`: full names by their number on the wire (ServerProtocol). Calls in flight may keep
  // the handler longer than the server.
  Server(const ServerOptions& options, std::vector<std::string> methods,
         std::shared_ptr<CallHandler> handler);

  // Takes a connection that begins with the framed RPC preface.
  void Adopt(int fd, ListenerPeer peer = {});
  // Sends pending replies for at most `grace`, then closes all connections and cancels the calls
  // that are left. Adopts no connection afterwards.
  void Stop(absl::Duration grace) { loops_.Stop(grace); }

 private:
  const std::shared_ptr<const ConnectionContext> context_;
  ConnectionLoops<ServerConnection> loops_;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_FRAMED_RPC_SERVER_H_
