// Inputs for which a wrong output shows its mistake, and the check of outputs.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_PATTERN_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_PATTERN_H_

#include "absl/status/status.h"
#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {

// Element i of rank r is (i + 331 r) mod 1021. The numbers are small and whole, so that sums are
// exact in any order. The period is prime, so that a block in a wrong place shows.
void FillInput(const Work& work, int rank, int members, float* input);

// Bytes that are no result.
void SpoilOutput(const Work& work, int rank, int members, float* output);

// DATA_LOSS when an element of the output is not what the operation gives; names the first.
absl::Status CheckOutput(const Work& work, int rank, int members, const float* output);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_PATTERN_H_
