// The local socket at which readers of the writer's host get the queue's memory. Their connections
// stay open, so that the kernel tells when one of the two processes has ended.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_LOCAL_DOOR_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_LOCAL_DOOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/parallel/queue/queue_loop.h"
#include "client/parallel/queue/ring_writer.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

class LocalDoor {
 public:
  // Admits readers that know the handle's token. While the process has no descriptors left, new
  // readers wait. Errors: RESOURCE_EXHAUSTED (no descriptors).
  static absl::StatusOr<std::unique_ptr<LocalDoor>> Open(std::shared_ptr<RingWriter> writer,
                                                         const v1::QueueHandle& handle);
  // Closes the connections of all readers.
  ~LocalDoor();

  // For the handle.
  const std::string& name() const;

 private:
  class Guest;
  class Hall;

  LocalDoor(std::shared_ptr<QueueLoop> loop, std::shared_ptr<Hall> hall)
      : loop_(std::move(loop)), hall_(std::move(hall)) {}

  const std::shared_ptr<QueueLoop> loop_;
  const std::shared_ptr<Hall> hall_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_LOCAL_DOOR_H_
