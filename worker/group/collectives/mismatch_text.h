// Explains to ranks that they called different collectives.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_MISMATCH_TEXT_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_MISMATCH_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// all_to_all is all_to_all_v with equal sizes, and each rank knows only its own sizes. So ranks may
// mix them.
enum class CallForm : char { kOther = 0, kAllToAll = 1, kAllToAllV = 2 };

// All ranks call it after a collective has failed on all of them with `mismatch`, which only knows
// digests. Each rank sends `own`, the text of its call. All ranks return the same error, which
// names two ranks that differ. Returns `mismatch` if the texts cannot be exchanged or do not
// differ. `mixed` tells whether the ranks' calls are a mix of all_to_all and all_to_all_v, which is
// no error: all ranks then run all_to_all_v.
absl::Status ExplainMismatch(Communicator& communicator, const std::string& own,
                             const absl::Status& mismatch, Instant deadline,
                             CallForm form = CallForm::kOther, bool* mixed = nullptr);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_MISMATCH_TEXT_H_
