// Arbitrary bytes in place of an access policy.
#ifndef COHORT_TESTS_FUZZ_ACCESS_POLICY_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_POLICY_CHECK_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::fuzz {

// `input`: the file. `accepted` (may be null): whether it is a policy.
//
// Errors: INTERNAL names the violated rule. A file that is no policy is refused with
// INVALID_ARGUMENT, the path and a reason. Otherwise each rule gives its role to its identity and
// to no other one, each token its name, and an unknown token nothing. A running server that finds
// the file takes it, or keeps the policy that it has.
absl::Status CheckPolicy(absl::string_view input, bool* accepted = nullptr);

// File name to input: policies, and files that are almost policies.
std::map<std::string, std::string> SamplePolicies();

}  // namespace cohort::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_POLICY_CHECK_H_
