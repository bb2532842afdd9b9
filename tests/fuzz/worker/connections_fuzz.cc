// Fuzzes the connections that a daemon sends to its client. connections_check.h has the input's
// format and the rules.
//
//   tests/fuzz/run.sh 60 connections_fuzz
#include "tests/fuzz/worker/connections_check.h"
#include "tests/fuzz/worker/fuzz_target.h"

COHORT_FUZZ_TARGET(cohort::worker::fuzz::CheckReceiveConnections,
                   cohort::worker::fuzz::SampleConnections)
