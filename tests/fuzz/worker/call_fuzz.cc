// Fuzzes tensor descriptors of calls. See call_check.h for what an input says and what must hold.
//
//   tests/fuzz/run.sh 60 call_fuzz
#include "tests/fuzz/worker/call_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckCall, cohort::worker::fuzz::SampleCalls)
