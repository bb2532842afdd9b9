// Fuzzes the frames that another rank sends. frame_check.h has the input's format and the rules.
//
//   tests/fuzz/run.sh 60 frame_fuzz
#include "tests/fuzz/parallel/frame_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::parallel::fuzz::CheckFrame(input); }

}  // namespace

COHORT_FUZZ_TARGET(Check, cohort::parallel::fuzz::SampleFrames)
