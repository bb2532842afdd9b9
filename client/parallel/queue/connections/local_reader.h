// How a reader on the writer's host maps the writer's memory.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_LOCAL_READER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_LOCAL_READER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/parallel/queue/ring/byte_source.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

// Returns when the writer has admitted the reader, which then reads all values from there on.
// Errors: UNAVAILABLE (the writer cannot be reached from here), FAILED_PRECONDITION (it refused;
// says why), INVALID_ARGUMENT (its messages make no sense), RESOURCE_EXHAUSTED (no room among the
// addresses), DEADLINE_EXCEEDED, the reason of a cancellation.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenLocalReader(const v1::QueueHandle& handle,
                                                            const std::string& name,
                                                            const WaitLimit& limit);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_LOCAL_READER_H_
