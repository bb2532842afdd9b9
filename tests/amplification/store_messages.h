// The messages of PyTorch's TCPStore: those of every operation.
#ifndef COHORT_TESTS_AMPLIFICATION_STORE_MESSAGES_H_
#define COHORT_TESTS_AMPLIFICATION_STORE_MESSAGES_H_

#include <cstddef>
#include <vector>

#include "tests/amplification/subject.h"

namespace cohort::amplification {

// `request_bytes`: the largest request that the server takes.
std::vector<Message> StoreMessages(int port, size_t request_bytes);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_STORE_MESSAGES_H_
