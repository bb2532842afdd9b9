// The local socket at which readers of the writer's host get the queue's memory. Their connections
// stay open, so that the kernel tells when one of the two processes has ended.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_LOCAL_ACCEPTOR_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_LOCAL_ACCEPTOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/parallel/queue/connections/connection_loop.h"
#include "client/parallel/queue/ring/ring_writer.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

class LocalAcceptor {
 public:
  // Admits readers that know the handle's token. While the process has no descriptors left, new
  // readers wait. With COHORT_HOST_FOLDER, readers also come from other network namespaces. Errors:
  // RESOURCE_EXHAUSTED (no descriptors), those of HostFolder::Open and LocalListener::Create.
  static absl::StatusOr<std::unique_ptr<LocalAcceptor>> Open(std::shared_ptr<RingWriter> writer,
                                                             const v1::QueueHandle& handle);
  // Closes the connections of all readers.
  ~LocalAcceptor();

  // For the handle.
  const std::string& name() const;
  const std::string& folder() const;

 private:
  class Connection;
  class State;

  LocalAcceptor(std::shared_ptr<ConnectionLoop> loop, std::shared_ptr<State> state)
      : loop_(std::move(loop)), state_(std::move(state)) {}

  const std::shared_ptr<ConnectionLoop> loop_;
  const std::shared_ptr<State> state_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_LOCAL_ACCEPTOR_H_
