// What a daemon hands over to its client, hostile: worker/group/hand_over.h.
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
// Errors: INTERNAL says what did not hold: that it ends at once, in a group or an error of the
// contract; that a group that comes out of it can be asked for a barrier; that no descriptor stays.
// `taken` (may be null): whether a group came out.
absl::Status CheckHandOver(absl::string_view input, bool* taken = nullptr);

std::vector<std::string> SampleHandOvers();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_HAND_OVER_CHECK_H_
