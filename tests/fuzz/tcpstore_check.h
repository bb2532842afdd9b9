// Arbitrary bytes in place of the requests of a TCPStore client:
// coordinator/service/tcpstore/tcpstore_request.h.
#ifndef COHORT_TESTS_FUZZ_TCPSTORE_CHECK_H_
#define COHORT_TESTS_FUZZ_TCPSTORE_CHECK_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"

namespace cohort::coordinator::fuzz {

// Reads `input` as the coordinator reads all bytes of a connection, with small limits. Adds the
// operations that it read to `operations`, which may be null.
//
// Errors: INTERNAL names the violated rule. More bytes do not change a decision for a protocol,
// which is there before 24 bytes. A request is read as soon as it is complete, and encodes to the
// same bytes. Its texts lie within its bytes and within the limits, and its keys are UTF-8. Other
// requests are refused with INVALID_ARGUMENT, UNIMPLEMENTED or RESOURCE_EXHAUSTED, the latter at
// `max_message_bytes` at last.
absl::Status CheckTcpStore(absl::string_view input,
                           std::vector<tcpstore::Operation>* operations = nullptr);

// File name to input, for tcpstore_fuzz: every operation of both dialects, and wrong requests.
std::map<std::string, std::string> SampleTcpStoreInputs();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_TCPSTORE_CHECK_H_
