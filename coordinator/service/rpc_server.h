// The server: binds its addresses, serves all services, and shuts down in order.
#ifndef COHORT_COORDINATOR_SERVICE_RPC_SERVER_H_
#define COHORT_COORDINATOR_SERVICE_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/port/listener.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/torchft/quorum_decision.h"

namespace cohort::coordinator {

// The protocols that an address may serve: gRPC and framed RPC of Cohort's services; PyTorch's
// TCPStore; torchft's lighthouse.
inline constexpr char kRpc[] = "rpc";
inline constexpr char kTcpStore[] = "tcpstore";
inline constexpr char kTorchft[] = "torchft";

struct RpcServerOptions {
  // host:port with an IPv4 or bracketed IPv6 address or a name, port 0 for any; or unix:/path.
  // Behind a TCP address may stand the protocols that it serves, as in "[::]:7700,rpc,tcpstore".
  // Without them it serves all; with TLS, kRpc alone, because clients of the others prove nothing.
  // A Unix socket does not serve kTcpStore.
  std::vector<std::string> listen = {"127.0.0.1:0"};
  mode_t unix_socket_mode = kPrivateMode;
  int max_message_bytes = 4 << 20;
  // Limits of connections and of the bytes that each may send. A connection of framed RPC may have
  // 16 * listener.http2.max_concurrent_streams calls in flight.
  ListenerOptions listener;
  // A connection whose peer answers no ping for this time is closed, with its streams. The server
  // sends a ping after half of it without data. Zero: no pings.
  absl::Duration ping_timeout = absl::Seconds(40);
  bool reflection = false;
  // Threads that serve framed RPC (base/framed_rpc/frame.h), on the same addresses; 0: gRPC alone.
  int framed_rpc_threads = 1;
  // Threads that serve PyTorch's TCPStore clients; 0: none.
  int tcpstore_threads = 1;
  // torchft's lighthouse has a job for each port that serves it; min_replicas 0: it is not served.
  torchft::QuorumOptions torchft;
};

class RpcServer {
 public:
  // Listens on exactly the given addresses; a port in use is an error. `dispatcher` must outlive
  // the server. Errors: INVALID_ARGUMENT (a malformed address), UNAVAILABLE (an address cannot be
  // bound; names it).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          Dispatcher& dispatcher);
  // Shuts down at once, unless it is shut down already.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // The addresses of Start; port 0 is replaced by the bound port.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // The status of the health service; SERVING from the start.
  void SetServing(bool serving);

  // Sets the health status NOT_SERVING, answers every parked call with UNAVAILABLE and ends all
  // streams. Returns when all calls are gone; at the end of `grace`, it cancels the calls that are
  // left first. Only one thread calls it, once.
  void Shutdown(absl::Duration grace);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::vector<std::string> addresses_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_RPC_SERVER_H_
