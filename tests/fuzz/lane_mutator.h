// Mutates the script of a lane step by step.
#ifndef COHORT_TESTS_FUZZ_LANE_MUTATOR_H_
#define COHORT_TESTS_FUZZ_LANE_MUTATOR_H_

#include "tests/fuzz/lane_script.h"
#include "tests/fuzz/message_mutator.h"

namespace cohort::coordinator::fuzz {

// Adds, drops, repeats or changes one step; the body of a call stays a message of its method.
void MutateLaneScript(Random& random, LaneScript* script);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_LANE_MUTATOR_H_
