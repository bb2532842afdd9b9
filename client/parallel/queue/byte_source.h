// Where a reader's records come from: the memory it shares with the writer, or a stream.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_BYTE_SOURCE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_BYTE_SOURCE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/parallel/queue/patience.h"

namespace cohort::parallel {

// One thread at a time reads; Stop is for any.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // From the front, in one piece, what is there and was not released; perhaps not all of it.
  virtual absl::string_view Peek() = 0;
  // The first `bytes` of Peek() are not looked at again; with them, so many values have been read.
  virtual void Release(uint64_t bytes, uint64_t values) = 0;
  // Until Peek() has `bytes` at least, which are no more than half the ring. Errors, none of which
  // loses anything: DEADLINE_EXCEEDED, without a word; the reason of a cancellation or of Stop. Or
  // why there will never be as many: CANCELLED (shut down), ABORTED (the writer is gone).
  virtual absl::Status Await(uint64_t bytes, const Patience& patience) = 0;
  // Ends what waits and will wait, whatever is there. The first reason stays.
  virtual void Stop(const absl::Status& reason) = 0;
  // Says good-bye: the writer waits for this reader no more, and what Peek() showed may change. By
  // the thread that reads, behind Stop. Never waits for the writer.
  virtual void Leave(absl::string_view reason) = 0;
  // "shared memory", or "stream ADDRESS".
  virtual std::string path() const = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_BYTE_SOURCE_H_
