// Arbitrary bytes as requests whose fields are counted before they are parsed.
#ifndef COHORT_TESTS_FUZZ_ACCESS_FIELD_COUNT_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_FIELD_COUNT_CHECK_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::fuzz {

struct FieldCounts {
  int64_t refused = 0;  // for the number of their fields
  int64_t parsed = 0;
  int64_t fields = 0;  // of those that were parsed
};

// `input`: type of the request (1 byte), limit (1 byte), bytes of the request.
//
// Errors: INTERNAL names the violated rule. A request with more fields than the limit, as protobuf
// has parsed them, is refused; one with fewer bytes than the limit is not. The answer is the same
// for bytes that come in pieces.
absl::Status CheckFields(absl::string_view input, FieldCounts* counts = nullptr);

// File name to input.
std::map<std::string, std::string> SampleRequests();

}  // namespace cohort::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_FIELD_COUNT_CHECK_H_
