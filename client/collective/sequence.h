// Recorded calls of a group on its GPUs, as a CUDA graph: each replay runs all of them.
#ifndef COHORT_CLIENT_COLLECTIVE_SEQUENCE_H_
#define COHORT_CLIENT_COLLECTIVE_SEQUENCE_H_

#include "absl/status/status.h"

namespace cohort::client {

struct CallOptions;

// It keeps the tensors of its calls alive, and is destroyed before its group. One thread at a time.
class Sequence {
 public:
  virtual ~Sequence() = default;

  // The number of calls.
  virtual int size() const = 0;
  // All ranks call it, like a collective. It runs the calls in the recorded order, with the current
  // elements of the tensors. The timeout limits all of them together. On a stream: see CallOptions.
  //
  // Errors: those of the collectives. FAILED_PRECONDITION (its generation has ended: record again).
  virtual absl::Status Replay(const CallOptions& options) = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_SEQUENCE_H_
