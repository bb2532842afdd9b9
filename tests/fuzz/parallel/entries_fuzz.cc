// Fuzzes the map entries that another rank sends. entries_check.h has the input's format and the
// rules.
//
//   tests/fuzz/run.sh 60 entries_fuzz
#include "tests/fuzz/parallel/entries_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::parallel::fuzz::CheckEntries(input); }

}  // namespace

COHORT_FUZZ_TARGET(Check, cohort::parallel::fuzz::SampleEntries)
