// The fuzzer's mutations of a script: its order, the callers and manners of calls, and single
// requests.
#ifndef COHORT_TESTS_FUZZ_MUTATORS_SCRIPT_MUTATOR_H_
#define COHORT_TESTS_FUZZ_MUTATORS_SCRIPT_MUTATOR_H_

#include "tests/fuzz/mutators/message_mutator.h"
#include "tests/fuzz/scripts/request_script.h"

namespace cohort::coordinator::fuzz {

void MutateScript(Random& random, RequestScript* script);

// The first steps of one, then the last of the other.
RequestScript CrossScripts(Random& random, const RequestScript& one, const RequestScript& other);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_MUTATORS_SCRIPT_MUTATOR_H_
