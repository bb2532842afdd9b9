// The source of a reader's records: the memory it shares with the writer, or a stream.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_BYTE_SOURCE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_BYTE_SOURCE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/parallel/queue/ring/wait_limit.h"

namespace cohort::parallel {

// One thread at a time reads; any thread calls Stop.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // The bytes from the front that were not released, in one piece; perhaps not all of them.
  virtual absl::string_view Peek() = 0;
  // Gives back the first `bytes` of Peek(). The reader has read `values` more values with them.
  virtual void Release(uint64_t bytes, uint64_t values) = 0;
  // Waits until Peek() has at least `bytes`, which are at most half the ring. Errors lose no byte:
  // DEADLINE_EXCEEDED, without a text; the reason of a cancellation or of Stop. Or why there will
  // never be as many bytes: CANCELLED (shut down), ABORTED (the writer is gone).
  virtual absl::Status Await(uint64_t bytes, const WaitLimit& limit) = 0;
  // Ends the waits of now and later, even if bytes are there. The first reason stays.
  virtual void Stop(const absl::Status& reason) = 0;
  // Leaves the queue: the writer no longer waits for this reader, and the bytes of Peek() may
  // change. The thread that reads calls it, after Stop. It never waits for the writer.
  virtual void Leave(absl::string_view reason) = 0;
  // "shared memory", or "stream ADDRESS", or "tls stream ADDRESS".
  virtual std::string path() const = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_BYTE_SOURCE_H_
