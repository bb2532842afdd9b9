// Arbitrary bytes in place of the names of a client, of a SPIFFE id, and of the header of the PROXY protocol.
#ifndef COHORT_TESTS_FUZZ_ACCESS_NAMES_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_NAMES_CHECK_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::fuzz {

struct NameCounts {
  int64_t lists = 0;  // that were taken
  int64_t ids = 0;
  int64_t headers = 0;
  int64_t refused = 0;
};

// `input`: kind (1 byte: names, SPIFFE id, header), bytes.
//
// Errors: INTERNAL names the violated rule. Names that are taken are those that were sent, and each is UTF-8 without the
// words that only a client through a worker has. A SPIFFE id that is taken has nothing to normalise. A header that is
// taken ends within the input, names an IP address or none, and needs all of its bytes.
absl::Status CheckNames(absl::string_view input, NameCounts* counts = nullptr);

// File name to input.
std::map<std::string, std::string> SampleNames();

}  // namespace cohort::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_NAMES_CHECK_H_
