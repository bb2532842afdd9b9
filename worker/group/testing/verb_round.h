// A verb chosen by chance, on all ranks, with shapes, layouts, types and sizes chosen by chance,
// and what each rank must hold after it, worked out in one place from all inputs.
#ifndef COHORT_WORKER_GROUP_TESTING_VERB_ROUND_H_
#define COHORT_WORKER_GROUP_TESTING_VERB_ROUND_H_

#include <random>

#include "base/tensor.h"
#include "worker/group/testing/verbs_world.h"

namespace cohort::worker {

// What is not as it should be is a failure of the test.
void RunVerbRound(VerbsWorld& world, std::mt19937& random);

// Mostly small; some so large that their parts go one by one.
Shape RandomShape(std::mt19937& random, int least_dims);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_VERB_ROUND_H_
