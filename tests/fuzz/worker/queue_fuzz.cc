// Fuzzes the bytes that the other end of a message queue leaves in shared memory or sends to the
// acceptor. queue_check.cc has the input's format, and queue_check.h the rules.
//
//   tests/fuzz/run.sh 60 queue_fuzz
#include "tests/fuzz/worker/fuzz_target.h"
#include "tests/fuzz/worker/queue_check.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckQueue, cohort::worker::fuzz::SampleQueues)
