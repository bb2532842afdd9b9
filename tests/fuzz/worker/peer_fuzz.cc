// Fuzzes the bytes that another rank writes into shared memory. peer_check.cc has the input's
// format, and peer_check.h the rules.
//
//   tests/fuzz/run.sh 60 peer_fuzz
#include "tests/fuzz/worker/fuzz_target.h"
#include "tests/fuzz/worker/peer_check.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckPeer, cohort::worker::fuzz::SamplePeers)
