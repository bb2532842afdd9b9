// What a client may say at the attach socket: worker/service/attach_server.h.
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

// An input: messages, each with its form (1 byte: bare, hello, registration, hand-over), its
// descriptors (see ReadFds), its length (1 byte) and body. Errors: INTERNAL says what did not hold:
// each message is answered, or the server closes; what is registered is memory that nobody can
// change in size; the session ends with its client, and nothing of it stays.
absl::Status CheckAttach(absl::string_view input, AttachCounts* counts = nullptr);

std::vector<std::string> SampleAttaches();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_ATTACH_CHECK_H_
