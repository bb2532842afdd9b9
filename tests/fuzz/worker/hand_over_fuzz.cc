// Fuzzes a daemon's hand-over to its client. hand_over_check.h has the input's format and the
// rules.
//
//   tests/fuzz/run.sh 60 hand_over_fuzz
#include "tests/fuzz/worker/fuzz_target.h"
#include "tests/fuzz/worker/hand_over_check.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckHandOver, cohort::worker::fuzz::SampleHandOvers)
