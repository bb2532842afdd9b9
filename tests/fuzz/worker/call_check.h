// Tensor descriptors of a client's calls: worker/service/collective_request.h.
#ifndef COHORT_TESTS_FUZZ_WORKER_CALL_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_CALL_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: a RunCollectiveRequest, as it travels. A group of one rank calls it. Errors: INTERNAL
// says what did not hold: that the error is of the contract, and that no more is sent than may be.
// That nothing beside the session's tensors is touched, the sanitizer says. `done` (may be null):
// whether it was OK.
absl::Status CheckCall(absl::string_view input, bool* done = nullptr);

std::vector<std::string> SampleCalls();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_CALL_CHECK_H_
