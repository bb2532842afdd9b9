// Hostile bytes in place of a daemon's hand-over to its client: worker/group/hand_over.h.
#ifndef COHORT_TESTS_FUZZ_WORKER_HAND_OVER_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_HAND_OVER_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: form (1 byte; odd: a HandOver with its preface before and descriptors behind it, else
// messages, each with its length in one byte), descriptors (see ReadFds), the rest.
//
// Errors: INTERNAL names the violated rule. The hand-over ends at once, with a group or an error of
// the contract. A group that results can run a barrier. No descriptor stays open. `taken` (may be
// null): whether a group resulted.
absl::Status CheckHandOver(absl::string_view input, bool* taken = nullptr);

std::vector<std::string> SampleHandOvers();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_HAND_OVER_CHECK_H_
