// Fuzzes signed tokens and the files of keys. jwt_check.h has the rules.
//
//   tests/fuzz/run.sh 60 jwt_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/jwt_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::fuzz::CheckJwt(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::fuzz::SampleJwts()) samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
