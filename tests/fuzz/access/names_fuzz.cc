// Fuzzes names of clients, SPIFFE ids and PROXY headers. names_check.h has the rules.
//
//   tests/fuzz/run.sh 60 names_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/names_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::fuzz::CheckNames(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::fuzz::SampleNames()) samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
