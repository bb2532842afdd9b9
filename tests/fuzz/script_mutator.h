// What a fuzzer does to a script: to its order, to who calls and how, and to single requests.
#ifndef COHORT_TESTS_FUZZ_SCRIPT_MUTATOR_H_
#define COHORT_TESTS_FUZZ_SCRIPT_MUTATOR_H_

#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/request_script.h"

namespace cohort::coordinator::fuzz {

void MutateScript(Random& random, RequestScript* script);

// The first steps of one, then the last of the other.
RequestScript CrossScripts(Random& random, const RequestScript& one, const RequestScript& other);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SCRIPT_MUTATOR_H_
