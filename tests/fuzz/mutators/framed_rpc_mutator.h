// Mutates a script of framed RPC step by step.
#ifndef COHORT_TESTS_FUZZ_MUTATORS_FRAMED_RPC_MUTATOR_H_
#define COHORT_TESTS_FUZZ_MUTATORS_FRAMED_RPC_MUTATOR_H_

#include "tests/fuzz/mutators/message_mutator.h"
#include "tests/fuzz/scripts/framed_rpc_script.h"

namespace cohort::coordinator::fuzz {

// Adds, drops, repeats or changes one step; the body of a call stays a message of its method.
void MutateFramedRpcScript(Random& random, FramedRpcScript* script);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_MUTATORS_FRAMED_RPC_MUTATOR_H_
