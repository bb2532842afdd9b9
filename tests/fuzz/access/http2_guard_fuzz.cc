// Fuzzes the bytes of HTTP/2 that the port counts before gRPC gets them. http2_guard_check.h has
// the rules.
//
//   tests/fuzz/run.sh 60 http2_guard_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/http2_guard_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::fuzz::CheckHttp2Guard(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::fuzz::SampleHttp2()) samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
