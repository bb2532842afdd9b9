// What is said to ranks that called different things.
#ifndef COHORT_WORKER_GROUP_EXPLAIN_MISMATCH_H_
#define COHORT_WORKER_GROUP_EXPLAIN_MISMATCH_H_

#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// Called by all ranks, after a verb has failed on all of them with `mismatch`, which knows digests
// where people want to know shapes: they tell each other what they called, `own`, and all get the
// same text, which names two that differ. At the worst, `mismatch` itself.
absl::Status ExplainMismatch(Communicator& communicator, const std::string& own,
                             const absl::Status& mismatch, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_EXPLAIN_MISMATCH_H_
