// The messages of a framed RPC server: those of every method that its hello names, and its frames
// without a call.
#ifndef COHORT_TESTS_AMPLIFICATION_FRAMED_MESSAGES_H_
#define COHORT_TESTS_AMPLIFICATION_FRAMED_MESSAGES_H_

#include <vector>

#include "tests/amplification/grpc_messages.h"
#include "tests/amplification/subject.h"

namespace cohort::amplification {

std::vector<Message> FramedMessages(const Sender& sender);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_FRAMED_MESSAGES_H_
