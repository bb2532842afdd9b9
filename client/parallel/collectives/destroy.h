// The end of a group, in bounded time.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_DESTROY_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_DESTROY_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// Leaves and frees the group: what its destructor does, on a thread of its own, because a GPU's
// library may not let go of what captured work still refers to. No other rank is asked; their calls
// end with ABORTED, which names this rank. Not beside calls of this rank. Seed: destroy.
//
// Errors: DEADLINE_EXCEEDED, with the group's name and this rank: then the rest goes on in the
// background, and the program may go on or exit.
absl::Status Destroy(std::unique_ptr<client::Group> group,
                     absl::Duration timeout = absl::Seconds(5));

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_DESTROY_H_
