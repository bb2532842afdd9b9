// Fuzzes requests whose fields are counted before they are parsed. field_count_check.h has the
// rules.
//
//   tests/fuzz/run.sh 60 field_count_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/field_count_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::fuzz::CheckFields(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::fuzz::SampleRequests()) samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
