// The framed RPC server: its threads, its connections and its end.
#ifndef COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_SERVER_H_
#define COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_SERVER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/rpc/listener/listener.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "coordinator/service/framed_rpc/framed_rpc_connection.h"

namespace cohort::coordinator {

struct FramedRpcServerOptions {
  int threads = 1;
  int max_message_bytes = 4 << 20;
  int max_concurrent_calls = 0;  // per connection; 0: no limit
  CallRateLimits limits;
};

// Streams and questions about all groups use gRPC, because a framed RPC thread serves many callers.
bool IsFramedMethod(Method method);

// Thread-safe.
class FramedRpcServer {
 public:
  // `dispatcher` outlives it.
  FramedRpcServer(const FramedRpcServerOptions& options, Dispatcher& dispatcher);
  // Stops at once, unless it is stopped already.
  ~FramedRpcServer();

  // Takes a connection that begins with the framed RPC preface.
  void Adopt(int fd, FramedRpcPeer peer = {});
  // Sends pending replies for at most `grace`, then closes all connections and cancels the calls
  // that are left. Adopts no connection afterwards.
  void Stop(absl::Duration grace);

 private:
  const FramedRpcProtocol protocol_;
  std::vector<std::unique_ptr<EventLoop>> loops_;
  Mutex mutex_;
  size_t next_loop_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<FramedRpcConnection>> connections_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_SERVER_H_
