// Fuzzes what another rank writes into shared memory. See peer_check.h for what an input says and
// what must hold.
//
//   tests/fuzz/run.sh 60 peer_fuzz
#include "tests/fuzz/worker/fuzz_target.h"
#include "tests/fuzz/worker/peer_check.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckPeer, cohort::worker::fuzz::SamplePeers)
