// All lanes of a server: their threads and their end.
#ifndef COHORT_COORDINATOR_SERVICE_LANE_LANE_SERVER_H_
#define COHORT_COORDINATOR_SERVICE_LANE_LANE_SERVER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/lane/event_loop.h"
#include "base/mutex.h"
#include "base/rpc/listener.h"
#include "coordinator/service/lane/lane_connection.h"

namespace cohort::coordinator {

struct LaneServerOptions {
  int threads = 1;
  int max_message_bytes = 4 << 20;
  int max_concurrent_calls = 0;  // per connection; 0: no limit
  LaneLimits limits;
};

// Streams and questions about all groups use gRPC, because a lane's thread serves many callers.
bool GoesByLane(Method method);

// Thread-safe.
class LaneServer {
 public:
  // `dispatcher` outlives it.
  LaneServer(const LaneServerOptions& options, Dispatcher& dispatcher);
  // Stops at once, unless it is stopped already.
  ~LaneServer();

  // Takes a connection that begins with the lane's preface.
  void Adopt(int fd, LanePeer peer = {});
  // Sends pending replies for at most `grace`, then closes all connections and cancels the calls
  // that are left. Adopts no connection afterwards.
  void Stop(absl::Duration grace);

 private:
  const LaneProtocol protocol_;
  std::vector<std::unique_ptr<lane::EventLoop>> loops_;
  Mutex mutex_;
  size_t next_loop_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<LaneConnection>> connections_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_LANE_LANE_SERVER_H_
