// Fuzzes what a daemon hands over. See hand_over_check.h for what an input says and what must hold.
//
//   tests/fuzz/run.sh 60 hand_over_fuzz
#include "tests/fuzz/worker/fuzz_target.h"
#include "tests/fuzz/worker/hand_over_check.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckHandOver, cohort::worker::fuzz::SampleHandOvers)
