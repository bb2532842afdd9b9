// Fuzzes the bytes that a TCPStore client of PyTorch sends. tcpstore_check.h has the rules.
//
//   tests/fuzz/run.sh 60 tcpstore_fuzz
#include <string>
#include <vector>

#include "tests/fuzz/tcpstore_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) {
  return cohort::coordinator::fuzz::CheckTcpStore(input);
}

std::vector<std::string> Samples() {
  std::vector<std::string> samples;
  for (const auto& [name, input] : cohort::coordinator::fuzz::SampleTcpStoreInputs()) {
    samples.push_back(input);
  }
  return samples;
}

}  // namespace

COHORT_FUZZ_TARGET(Check, Samples)
