// The messages of a metrics port, which speaks HTTP/1.1.
#ifndef COHORT_TESTS_AMPLIFICATION_METRICS_MESSAGES_H_
#define COHORT_TESTS_AMPLIFICATION_METRICS_MESSAGES_H_

#include <string>
#include <vector>

#include "tests/amplification/subject.h"

namespace cohort::amplification {

// `token`: a bearer token; empty: none.
std::vector<Message> MetricsMessages(int port, const std::string& token);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_METRICS_MESSAGES_H_
