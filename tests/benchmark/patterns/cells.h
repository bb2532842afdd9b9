// The measured patterns, as contests of one rank.
#ifndef COHORT_TESTS_BENCHMARK_PATTERNS_CELLS_H_
#define COHORT_TESTS_BENCHMARK_PATTERNS_CELLS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "tests/benchmark/patterns/contest.h"

namespace cohort::benchmark {

// All ranks of `group` make the same contests, one after the other, and run each. The objects of a
// contest live as long as its contenders.

// A map of 100 tensors from rank 0 to rank 1, beside 100 sends.
absl::StatusOr<std::vector<Contest>> TensorMapContests(client::Group& group);
// Values from rank 0 to all others, compared with the plain ring in a file at `scratch` and with
// streams. With two ranks, also a value there and back.
absl::StatusOr<std::vector<Contest>> QueueContests(client::Group& group,
                                                   const std::string& scratch);
// Tokens to all ranks and back, compared with the two collectives called by hand.
absl::StatusOr<std::vector<Contest>> MoeContests(client::Group& group);
// A tensor of a shape that the next stage does not know, compared with two messages.
absl::StatusOr<std::vector<Contest>> PipelineContests(client::Group& group);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PATTERNS_CELLS_H_
