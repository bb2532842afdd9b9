// Changes a message by its fields, so that what a fuzzer makes of a request is a request again.
#ifndef COHORT_TESTS_FUZZ_MESSAGE_MUTATOR_H_
#define COHORT_TESTS_FUZZ_MESSAGE_MUTATOR_H_

#include <random>

#include "google/protobuf/message.h"

namespace cohort::coordinator::fuzz {

using Random = std::mt19937_64;

// Sets, clears or repeats one field, anywhere in `message`. Favours the values at which bounds lie,
// and names that other requests use too.
void MutateMessage(Random& random, google::protobuf::Message* message);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_MESSAGE_MUTATOR_H_
