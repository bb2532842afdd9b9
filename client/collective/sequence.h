// Calls of a group, recorded once, to be done again and again by one call of each rank.
#ifndef COHORT_CLIENT_COLLECTIVE_SEQUENCE_H_
#define COHORT_CLIENT_COLLECTIVE_SEQUENCE_H_

#include "absl/status/status.h"

namespace cohort::client {

struct CallOptions;

// Keeps the tensors of its calls, and is gone before its group. One thread at a time.
class Sequence {
 public:
  virtual ~Sequence() = default;

  // How many calls.
  virtual int size() const = 0;
  // All ranks call it, as they would a verb. Does the calls in the order in which they were
  // recorded, with what the tensors have in them now; the timeout is of all together. On a stream,
  // where all tensors are on GPUs: see CallOptions.
  //
  // Errors: those of the verbs, with the number of the call that failed; those behind it are not
  // done. FAILED_PRECONDITION (its generation has ended: record anew).
  virtual absl::Status Replay(const CallOptions& options) = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_SEQUENCE_H_
