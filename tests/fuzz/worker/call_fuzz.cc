// Fuzzes tensor descriptors of calls. call_check.h has the input's format and the rules.
//
//   tests/fuzz/run.sh 60 call_fuzz
#include "tests/fuzz/worker/call_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckCall, cohort::worker::fuzz::SampleCalls)
