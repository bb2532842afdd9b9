// The worker's server: binds addresses, serves, and shuts down in order.
#ifndef COHORT_WORKER_DAEMON_SERVER_WORKER_SERVER_H_
#define COHORT_WORKER_DAEMON_SERVER_WORKER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/framed_rpc/server/blocking_server.h"
#include "base/port/listener.h"
#include "base/port/peer/ip_network.h"
#include "base/tls/tls_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "worker/daemon/methods/worker_service.h"
#include "worker/daemon/server/framed_collective_handler.h"

namespace cohort::worker {

struct WorkerServerOptions {
  // host:port with port 0 for any, or unix:/path.
  std::vector<std::string> listen;
  mode_t unix_socket_mode = kPrivateMode;
  int64_t max_message_bytes = 0;
  bool reflection = false;
  // Connections for calls in plain frames, beside gRPC; 0: none.
  int max_framed_connections = 0;
  int max_calls = 1024;  // calls that block at once, each on a thread
  // See ListenerOptions.
  int max_connections = 0;
  std::shared_ptr<TlsContext> tls;
  std::shared_ptr<AccessPolicy> access;  // null: each client has all rights
  std::vector<IpNetwork> proxies;
  bool plain = true;
};

class WorkerServer {
 public:
  // Listens on exactly the addresses in `options`. A taken port or path is an error; a path that a
  // dead worker left is not. `service` outlives it. Errors: INVALID_ARGUMENT (an unusable address),
  // UNAVAILABLE (cannot be bound; names it).
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerServerOptions& options,
                                                             WorkerService& service);
  ~WorkerServer() { Shutdown(absl::ZeroDuration()); }

  // The addresses of the options, with the bound port in place of port 0.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Sets the status of the health service; SERVING from the start.
  void SetServing(bool serving);
  // Accepts no more connections, and cancels the remaining calls after `grace`. Waits for all calls
  // to return: the caller first ends the operations that block them.
  void Shutdown(absl::Duration grace);

 private:
  WorkerServer() = default;

  std::vector<std::string> addresses_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<FramedCollectiveHandler> framed_handler_;
  std::unique_ptr<framed_rpc::BlockingServer> framed_server_;  // after its handler
  std::unique_ptr<::cohort::Listener> listener_;
  bool stopped_ = false;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SERVER_WORKER_SERVER_H_
