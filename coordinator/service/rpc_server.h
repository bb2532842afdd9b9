// The listening side: binds, serves all services, and goes away in order.
#ifndef COHORT_COORDINATOR_SERVICE_RPC_SERVER_H_
#define COHORT_COORDINATOR_SERVICE_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/listener.h"
#include "coordinator/service/dispatcher.h"

namespace cohort::coordinator {

struct RpcServerOptions {
  // host:port with an IPv4 or bracketed IPv6 address or a name, port 0 for any; or unix:/path.
  std::vector<std::string> listen = {"127.0.0.1:0"};
  int max_message_bytes = 4 << 20;
  // Limits of connections, and of what each sends. On the lane there may be
  // 16 * listener.http2.max_concurrent_streams calls in flight on a connection.
  ListenerOptions listener;
  // A connection whose peer answers no ping for so long is closed, with its streams; pings go out
  // after half of it without data. Zero: no pings.
  absl::Duration ping_timeout = absl::Seconds(40);
  bool reflection = false;
  // Threads that serve the lane (base/lane/frame.h), on the same addresses; 0: gRPC alone.
  int lane_threads = 1;
};

class RpcServer {
 public:
  // Listens on exactly the addresses asked for; a taken port is an error. `dispatcher` must outlive
  // the server. Errors: INVALID_ARGUMENT (an address that makes no sense), UNAVAILABLE (cannot be
  // bound; names it).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          Dispatcher& dispatcher);
  // Shuts down at once unless that has been done.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // As asked, with port 0 replaced by the one that was given.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // What the health service says; SERVING from the start.
  void SetServing(bool serving);

  // Says NOT_SERVING, answers every parked call UNAVAILABLE, ends all streams, and returns when all
  // calls are gone, or at the end of `grace` with those that were left cancelled. From one thread,
  // once.
  void Shutdown(absl::Duration grace);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::vector<std::string> addresses_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_RPC_SERVER_H_
