// Arbitrary bytes, as the request of any method, through the codec alone.
#ifndef COHORT_TESTS_FUZZ_DECODE_CHECK_H_
#define COHORT_TESTS_FUZZ_DECODE_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::coordinator::fuzz {

// `input`: method (1 byte), time left until the caller's deadline (1 byte: 2^n ms, above 62: none),
// request. `accepted` (may be null): whether the request was well formed.
//
// Errors: INTERNAL names the violated rule. A request is refused with INVALID_ARGUMENT or
// RESOURCE_EXHAUSTED and a text of at most 2 KB. Otherwise its call keeps every bound on which the
// state machine relies: names, signs, waits, sorted ranges, sizes.
absl::Status CheckDecode(absl::string_view input, bool* accepted = nullptr);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_DECODE_CHECK_H_
