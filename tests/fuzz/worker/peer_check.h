// The bytes that another rank may write into memory that it shares with this one:
// worker/communicator/host.
#ifndef COHORT_TESTS_FUZZ_WORKER_PEER_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_PEER_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: a collective that this rank calls twice, and the bytes that the other of two ranks
// writes into the group's memory before each call. See peer_check.cc.
//
// Errors: INTERNAL names the violated rule: the call ends at its deadline, with an error of the
// communicator's contract, whose text can travel. Sanitizers and inaccessible pages around the
// heaps check that the call touches only tensors and shared memory. `done` (may be null): the
// number of calls that were OK.
absl::Status CheckPeer(absl::string_view input, int* done = nullptr);

std::vector<std::string> SamplePeers();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_PEER_CHECK_H_
