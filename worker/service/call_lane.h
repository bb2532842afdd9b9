// Collectives in plain frames (base/lane/frame.h), on the addresses of gRPC: a call has less on its
// way there than in HTTP/2.
#ifndef COHORT_WORKER_SERVICE_CALL_LANE_H_
#define COHORT_WORKER_SERVICE_CALL_LANE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/lane/frame.h"
#include "base/mutex.h"
#include "base/rpc/incoming_bytes.h"
#include "base/unique_fd.h"
#include "worker/service/worker_service.h"

namespace cohort::worker {

// RunCollective alone. Each connection has a thread, which reads a call, runs it and answers it: so
// nobody is woken in between, and a client has one call in flight on each. A connection that ends
// gives its descriptor back at once. Thread-safe.
class CallLane {
 public:
  // `service` outlives it. Connections above `max_connections`, and those for which the system
  // starts no thread, are closed: their clients go by gRPC.
  CallLane(WorkerService& service, int64_t max_message_bytes, int max_connections);
  // As Stop, at once.
  ~CallLane();

  // Takes a connection that begins with the lane's preface.
  void Adopt(int fd, std::shared_ptr<IncomingBytes> incoming = nullptr);
  // Reads no more calls; those that run are answered, if they are done and taken within `grace`.
  // Waits for all threads: whatever blocks calls has been ended before.
  void Stop(absl::Duration grace);

 private:
  struct Connection {
    UniqueFd fd;
    std::shared_ptr<IncomingBytes> incoming;  // of all connections of its address
    bool done = false;
    std::thread thread;
  };

  void Serve(Connection& connection);
  // Until the connection is of no more use.
  void ServeCalls(int fd, std::shared_ptr<IncomingBytes> incoming);
  // One frame of a call. `refusal`: why its body was not read; OK: it was. False: the connection is of
  // no more use.
  bool Answer(int fd, const lane::Frame& frame, absl::Status refusal);
  absl::Status Run(const lane::Frame& frame, v1::RunCollectiveResponse* response);
  void JoinDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerService& service_;
  const int64_t max_message_bytes_;
  const size_t max_connections_;
  Mutex mutex_;
  // Threads refer to their own.
  std::list<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Instant next_log_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_CALL_LANE_H_
