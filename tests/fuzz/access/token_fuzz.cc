// Fuzzes bearer tokens in metadata, in frames and in files. token_check.h has the rules.
//
//   tests/fuzz/run.sh 60 token_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/token_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::coordinator::fuzz::CheckToken(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::coordinator::fuzz::SampleTokens())
    samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
