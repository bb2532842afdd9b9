// Mutates a message field by field, so that a mutated request is still a request.
#ifndef COHORT_TESTS_FUZZ_MUTATORS_MESSAGE_MUTATOR_H_
#define COHORT_TESTS_FUZZ_MUTATORS_MESSAGE_MUTATOR_H_

#include <random>

#include "google/protobuf/message.h"

namespace cohort::coordinator::fuzz {

using Random = std::mt19937_64;

// Sets, clears or repeats one field, anywhere in `message`. Prefers values at bounds, and names
// that other requests use too.
void MutateMessage(Random& random, google::protobuf::Message* message);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_MUTATORS_MESSAGE_MUTATOR_H_
