// Arbitrary signed tokens, arbitrary bytes in place of one, and arbitrary files of keys.
#ifndef COHORT_TESTS_FUZZ_ACCESS_JWT_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_JWT_CHECK_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::fuzz {

struct JwtCounts {
  int64_t accepted = 0;  // tokens
  int64_t refused = 0;
  int64_t key_sets = 0;  // files that were taken
};

// `input`: kind (1 byte: signed, token, keys), bytes. Those of a signed token are its header and
// its payload with a line feed between them; the check signs them with a key of its own.
//
// Errors: INTERNAL names the violated rule. A signed token is accepted if its header names the key
// and its algorithm, and if its payload has all claims; it then has the subject of the payload. Any
// other token is refused with INVALID_ARGUMENT. A file of keys is taken or refused, and has no key
// under an id that the file does not have.
absl::Status CheckJwt(absl::string_view input, JwtCounts* counts = nullptr);

// File name to input: tokens and keys, and texts that are almost tokens and keys.
std::map<std::string, std::string> SampleJwts();

}  // namespace cohort::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_JWT_CHECK_H_
