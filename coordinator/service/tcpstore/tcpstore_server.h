// Serves PyTorch's TCPStore clients with the keys of the coordinator.
//
//   tcpstore::Server server(options, dispatcher);
//   sinks.protocols.push_back({tcpstore::MatchTcpStore, [&](int fd, ListenerPeer peer) {
//                                server.Adopt(fd, std::move(peer));
//                              }});
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_SERVER_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_SERVER_H_

#include <vector>

#include "absl/time/time.h"
#include "base/framed_rpc/server/connection_loops.h"
#include "base/port/peer/listener_peer.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/tcpstore/tcpstore_connection.h"
#include "coordinator/service/tcpstore/tcpstore_jobs.h"

namespace cohort::coordinator::tcpstore {

struct ServerOptions {
  int threads = 1;
  std::vector<int> ports;  // of the coordinator
};

// Thread-safe.
class Server {
 public:
  // `dispatcher` outlives it.
  Server(const ServerOptions& options, Dispatcher& dispatcher);

  // Takes a connection whose first bytes MatchTcpStore has matched.
  void Adopt(int fd, ListenerPeer peer);
  // Sends pending answers for at most `grace`, then closes all connections. Adopts no connection
  // afterwards. The engine is shut down.
  void Stop(absl::Duration grace) { loops_.Stop(grace); }

 private:
  Dispatcher& dispatcher_;
  Jobs jobs_;
  framed_rpc::ConnectionLoops<Connection> loops_;
};

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_SERVER_H_
