// Fuzzes what the other end of a message queue leaves in shared memory, and says at the door. See
// queue_check.h for what an input says and what must hold.
//
//   tests/fuzz/run.sh 60 queue_fuzz
#include "tests/fuzz/worker/fuzz_target.h"
#include "tests/fuzz/worker/queue_check.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckQueue, cohort::worker::fuzz::SampleQueues)
