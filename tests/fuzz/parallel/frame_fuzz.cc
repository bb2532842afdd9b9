// Fuzzes what another rank sends. See frame_check.h for what an input says and what must hold.
//
//   tests/fuzz/run.sh 60 frame_fuzz
#include "tests/fuzz/parallel/frame_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

namespace {

absl::Status Check(absl::string_view input) { return cohort::parallel::fuzz::CheckFrame(input); }

}  // namespace

COHORT_FUZZ_TARGET(Check, cohort::parallel::fuzz::SampleFrames)
