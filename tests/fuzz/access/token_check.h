// Arbitrary bytes in place of a bearer token: in the metadata of a gRPC call, in frames, in a
// client's token file.
#ifndef COHORT_TESTS_FUZZ_ACCESS_TOKEN_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_TOKEN_CHECK_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::coordinator::fuzz {

struct TokenCounts {
  int64_t accepted = 0;
  int64_t refused = 0;
};

// `input`: place (1 byte: metadata, frames, file), bytes. The bytes of frames are up to three
// tokens with their lengths (2 bytes, little endian) in front of them.
//
// Errors: INTERNAL names the violated rule. The one token of the policy gives its rights, in one
// place alone. Any other one gives none, and errors do not show it. The last token of a connection
// counts; a token of more than 4096 bytes closes it. A token file is taken if it has one token and
// white space behind it.
absl::Status CheckToken(absl::string_view input, TokenCounts* counts = nullptr);

// File name to input: the token of the policy in each place, and bytes that look like it.
std::map<std::string, std::string> SampleTokens();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_TOKEN_CHECK_H_
