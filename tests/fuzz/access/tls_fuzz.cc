// Fuzzes the bytes that a client without rights sends to a port with TLS. tls_check.h has the
// rules.
//
//   tests/fuzz/run.sh 60 tls_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/access/tls_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::coordinator::fuzz::CheckTls(input); }

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::coordinator::fuzz::SampleTlsInputs())
    samples.push_back(input);
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
