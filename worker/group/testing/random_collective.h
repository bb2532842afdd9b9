// Runs a random collective on all ranks, with random shapes, layouts, types and sizes. Compares the
// results with a model that computes them from all inputs.
#ifndef COHORT_WORKER_GROUP_TESTING_RANDOM_COLLECTIVE_H_
#define COHORT_WORKER_GROUP_TESTING_RANDOM_COLLECTIVE_H_

#include <random>

#include "base/tensor/tensor.h"
#include "worker/group/testing/collective_world.h"

namespace cohort::worker {

// Reports differences as failures of the test.
void RunRandomCollective(CollectiveWorld& world, std::mt19937& random);

// Mostly small; some shapes are so large that their parts move one by one.
Shape RandomShape(std::mt19937& random, int least_dims);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_RANDOM_COLLECTIVE_H_
