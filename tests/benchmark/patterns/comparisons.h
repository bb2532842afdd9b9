// The measured patterns, as one rank runs them.
#ifndef COHORT_TESTS_BENCHMARK_PATTERNS_COMPARISONS_H_
#define COHORT_TESTS_BENCHMARK_PATTERNS_COMPARISONS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "tests/benchmark/patterns/comparison.h"

namespace cohort::benchmark {

// All ranks of `group` make the same comparisons, one after the other, and run each. The objects of
// a comparison live as long as its implementations.

// A map of 100 tensors from rank 0 to rank 1, compared with 100 sends.
absl::StatusOr<std::vector<Comparison>> TensorMapComparisons(client::Group& group);
// Values from rank 0 to all others, compared with the plain ring in a file at `scratch` and with
// streams. With two ranks, also a value there and back.
absl::StatusOr<std::vector<Comparison>> QueueComparisons(client::Group& group,
                                                         const std::string& scratch);
// Tokens to all ranks and back, compared with the two collectives called by hand.
absl::StatusOr<std::vector<Comparison>> MoeComparisons(client::Group& group);
// A tensor of a shape that the next stage does not know, compared with two messages.
absl::StatusOr<std::vector<Comparison>> PipelineComparisons(client::Group& group);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PATTERNS_COMPARISONS_H_
