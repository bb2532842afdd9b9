// Fuzzes the messages of clients at the attach socket. attach_check.h has the input's format and
// the rules.
//
//   tests/fuzz/run.sh 60 attach_fuzz
#include "tests/fuzz/worker/attach_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckAttach, cohort::worker::fuzz::SampleAttaches)
