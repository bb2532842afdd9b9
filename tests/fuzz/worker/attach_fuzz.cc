// Fuzzes what clients say at the attach socket. See attach_check.h for what an input says and what
// must hold.
//
//   tests/fuzz/run.sh 60 attach_fuzz
#include "tests/fuzz/worker/attach_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckAttach, cohort::worker::fuzz::SampleAttaches)
