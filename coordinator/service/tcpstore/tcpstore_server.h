// Serves PyTorch's TCPStore clients with the keys of the coordinator.
//
//   tcpstore::Server server(options, dispatcher);
//   sinks.extra = ListenerProtocol{tcpstore::MatchTcpStore, [&](int fd, ListenerPeer peer) {
//                                    server.Adopt(fd, std::move(peer));
//                                  }};
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_SERVER_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_SERVER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/rpc/listener/listener_peer.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
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
  // Stops at once, unless it is stopped already.
  ~Server();

  // Takes a connection whose first bytes MatchTcpStore has matched.
  void Adopt(int fd, ListenerPeer peer);
  // Sends pending answers for at most `grace`, then closes all connections. Adopts no connection
  // afterwards. The engine is shut down.
  void Stop(absl::Duration grace);

 private:
  Dispatcher& dispatcher_;
  Jobs jobs_;
  std::vector<std::unique_ptr<EventLoop>> loops_;
  Mutex mutex_;
  size_t next_loop_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_SERVER_H_
