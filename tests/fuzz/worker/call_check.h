// Tensor descriptors of a client's calls: worker/daemon/methods/collective_request.h.
#ifndef COHORT_TESTS_FUZZ_WORKER_CALL_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_CALL_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: an encoded RunCollectiveRequest. A group of one rank runs it. Errors: INTERNAL names
// the violated rule: the error is one of the contract, and the answer is no larger than allowed.
// The sanitizer checks that no memory besides the session's tensors is touched. `done` (may be
// null): whether the call was OK.
absl::Status CheckCall(absl::string_view input, bool* done = nullptr);

std::vector<std::string> SampleCalls();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_CALL_CHECK_H_
