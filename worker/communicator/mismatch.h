// The error of ranks that called different collectives. Its mark tells it from an error of a rank's
// own arguments. All ranks get it after the same call, so that they can continue together.
#ifndef COHORT_WORKER_COMMUNICATOR_MISMATCH_H_
#define COHORT_WORKER_COMMUNICATOR_MISMATCH_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker {

// Returns INVALID_ARGUMENT with the mark. It names the calls of rank 0 and of `other_rank`. If the
// two descriptions are equal, the tags differ.
absl::Status MismatchError(absl::string_view first, int other_rank, absl::string_view other);
bool IsMismatch(const absl::Status& status);

// Returns INVALID_ARGUMENT of a call from which some ranks had returned, with this text. All ranks
// get EarlierMismatchError later.
absl::Status FirstMismatchError(absl::string_view text);
bool IsFirstMismatch(const absl::Status& status);

// The mismatch of a call before this one, from which some ranks had returned: `text` names the
// calls. No rank has run this call. `own_call`: this rank's call then; not empty.
absl::Status EarlierMismatchError(absl::string_view text, absl::string_view own_call);
// The `own_call` of such an error; nullopt for any other status.
std::optional<std::string> EarlierCallOf(const absl::Status& status);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_MISMATCH_H_
