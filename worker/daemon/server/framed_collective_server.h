// Runs collectives that arrive in plain frames (base/framed_rpc/frame.h), on the same addresses as
// gRPC. A frame takes less time than a call in HTTP/2.
#ifndef COHORT_WORKER_DAEMON_SERVER_FRAMED_COLLECTIVE_SERVER_H_
#define COHORT_WORKER_DAEMON_SERVER_FRAMED_COLLECTIVE_SERVER_H_

#include <cstdint>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/rpc/listener/incomplete_request_bytes.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "worker/daemon/methods/worker_service.h"

namespace cohort::worker {

// Serves RunCollective alone. Each connection has a thread that reads a call, runs it and answers
// it, so that no other thread is woken. A client has one call in flight on each connection. A
// connection that ends frees its descriptor at once. Thread-safe.
class FramedCollectiveServer {
 public:
  // `service` outlives it. A connection is closed if there are `max_connections` already, or if the
  // system starts no thread for it. Its client then calls by gRPC.
  FramedCollectiveServer(WorkerService& service, int64_t max_message_bytes, int max_connections);
  // Like Stop with no grace.
  ~FramedCollectiveServer();

  // Takes a connection that begins with the framed RPC preface.
  void Adopt(int fd, std::shared_ptr<IncompleteRequestBytes> incoming = nullptr);
  // Reads no more calls. Running calls are answered, if they end and their clients take the answers
  // within `grace`. Waits for all threads: callers first end the operations that block calls.
  void Stop(absl::Duration grace);

 private:
  struct Connection {
    UniqueFd fd;
    std::shared_ptr<IncompleteRequestBytes> incoming;  // shared by all connections of its address
    bool done = false;
    std::thread thread;
  };

  void Serve(Connection& connection);
  // Serves calls until the connection fails or closes.
  void ServeCalls(int fd, std::shared_ptr<IncompleteRequestBytes> incoming);
  // Answers one frame of a call. `error` is the reason why its body was not read; OK if it was
  // read. Returns false if the connection cannot be used any more.
  bool Answer(int fd, const framed_rpc::Frame& frame, absl::Status error);
  absl::Status Run(const framed_rpc::Frame& frame, v1::RunCollectiveResponse* response);
  void JoinDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerService& service_;
  const int64_t max_message_bytes_;
  const size_t max_connections_;
  Mutex mutex_;
  // A list: threads hold references to their entries.
  std::list<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Instant next_log_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SERVER_FRAMED_COLLECTIVE_SERVER_H_
