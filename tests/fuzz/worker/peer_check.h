// What another rank may write into memory that it shares with this one:
// worker/communicator/host.
#ifndef COHORT_TESTS_FUZZ_WORKER_PEER_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_PEER_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: what this rank calls, twice, and what lies in the group's memory before each call, as
// the other of two ranks has written it. See peer_check.cc.
//
// Errors: INTERNAL says what did not hold: that the call ends at its deadline, in an error of the
// communicator's contract, with a text that can travel. That nothing outside of tensors and shared
// memory is touched, the sanitizer and pages without rights around heaps say. `done` (may be null):
// how many calls were OK.
absl::Status CheckPeer(absl::string_view input, int* done = nullptr);

std::vector<std::string> SamplePeers();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_PEER_CHECK_H_
