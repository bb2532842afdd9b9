// The gRPC server in the writer's process, from which readers of other hosts read.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_STREAM_SERVER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_STREAM_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/rank_tls.h"
#include "client/parallel/queue/ring/ring_writer.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

struct StreamServerOptions {
  // "host:port" or "[IPv6]:port", port 0 for any. Empty: any port of all addresses.
  std::string listen;
  // The host that the server tells readers. Empty: COHORT_ADVERTISED_HOST, the interface of
  // COHORT_SOCKET_IFNAME, or else the hosts it listens at.
  std::string advertise;
  RankTls tls;
  // A stream without a hello by then is ended.
  absl::Duration hello_timeout = absl::Seconds(10);
};

class StreamServer {
 public:
  // Errors: INVALID_ARGUMENT (an address that makes no sense, certificates that cannot be used),
  // UNAVAILABLE (the address cannot be bound; names it).
  static absl::StatusOr<std::unique_ptr<StreamServer>> Start(const StreamServerOptions& options,
                                                             std::shared_ptr<RingWriter> writer,
                                                             const v1::QueueHandle& handle);
  // Closes the streams of all readers.
  ~StreamServer();

  // The addresses by which readers reach it, for the handle.
  const std::vector<std::string>& addresses() const { return addresses_; }
  int port() const { return port_; }

  // After the queue ended: waits until all readers have read all of it, at most for `linger`.
  void Finish(absl::Duration linger);

 private:
  struct Impl;
  explicit StreamServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
  std::vector<std::string> addresses_;
  int port_ = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_STREAM_SERVER_H_
