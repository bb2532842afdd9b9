// Hostile bytes in place of the connections that a daemon sends to its client:
// worker/group/connections/transfer_connections.h.
#ifndef COHORT_TESTS_FUZZ_WORKER_CONNECTIONS_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_CONNECTIONS_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: form (1 byte; odd: a ConnectionsMessage with its preface before and descriptors behind
// it, else messages, each with its length in one byte), descriptors (see ReadFds), the rest.
//
// Errors: INTERNAL names the violated rule. ReceiveConnections returns at once, with a group or an
// error of the contract. A group that results can run a barrier. No descriptor stays open. `taken`
// (may be null): whether a group resulted.
absl::Status CheckReceiveConnections(absl::string_view input, bool* taken = nullptr);

std::vector<std::string> SampleConnections();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_CONNECTIONS_CHECK_H_
