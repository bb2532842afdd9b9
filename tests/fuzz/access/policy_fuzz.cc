// Fuzzes the file of the access policy. policy_check.h has the rules.
//
//   tests/fuzz/run.sh 60 policy_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/policy_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::fuzz::CheckPolicy(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::fuzz::SamplePolicies()) samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
