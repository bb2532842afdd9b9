// A reader that shares no memory with the writer: its end of a stream.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_STREAM_READER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_STREAM_READER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/parallel/queue/byte_source.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

// At `address`, which is one of the handle's or the writer's port elsewhere. Returns when it is in:
// what is written from then on is read. Holds no more than the queue's capacity. Errors:
// UNAVAILABLE (nobody there), PERMISSION_DENIED and INVALID_ARGUMENT (refused),
// DEADLINE_EXCEEDED.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenStreamReader(const v1::QueueHandle& handle,
                                                             const std::string& address,
                                                             const std::string& name,
                                                             Instant deadline);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_STREAM_READER_H_
