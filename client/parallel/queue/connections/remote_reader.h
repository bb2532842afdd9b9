// The end of a stream of a reader that shares no memory with the writer.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_REMOTE_READER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_REMOTE_READER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/rank_tls.h"
#include "client/parallel/queue/ring/byte_source.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

// `address` is one of the handle's, or the writer's port at another host. Returns when the writer
// has admitted the reader, which then reads all values from there on. Holds at most the queue's
// capacity in bytes. Errors: UNAVAILABLE (no process listens there, or one side refuses the
// certificate of the other), FAILED_PRECONDITION (either this process or the writer uses TLS, the
// other does not), PERMISSION_DENIED and INVALID_ARGUMENT (refused), DEADLINE_EXCEEDED, the reason
// of a cancellation.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenStreamReader(const v1::QueueHandle& handle,
                                                             const std::string& address,
                                                             const std::string& name,
                                                             const RankTls& tls,
                                                             const WaitLimit& limit);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_REMOTE_READER_H_
