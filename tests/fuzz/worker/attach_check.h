// Messages that a client may send to the attach socket: worker/daemon/server/attach_server.h.
#ifndef COHORT_TESTS_FUZZ_WORKER_ATTACH_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_ATTACH_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

struct AttachCounts {
  int accepted = 0;
  int refused = 0;
};

// An input: messages, each with its form (1 byte: bare, hello, registration, connections, device
// registration), its descriptors (see ReadFds), its length (1 byte) and body. Errors: INTERNAL
// names the violated rule. The server answers each message, or closes. No client can change the
// size of registered memory. The session ends with its client, and nothing of it stays.
absl::Status CheckAttach(absl::string_view input, AttachCounts* counts = nullptr);

std::vector<std::string> SampleAttaches();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_ATTACH_CHECK_H_
