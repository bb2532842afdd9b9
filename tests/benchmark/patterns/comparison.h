// One communication pattern, run by several implementations on the same ranks, in turns.
#ifndef COHORT_TESTS_BENCHMARK_PATTERNS_COMPARISON_H_
#define COHORT_TESTS_BENCHMARK_PATTERNS_COMPARISON_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "tests/benchmark/harness/report.h"

namespace cohort::benchmark {

struct PatternImplementation {
  std::string name;
  // One step of this rank; all ranks run equally many.
  std::function<absl::Status()> step;
};

struct Comparison {
  std::string pattern;
  // Other parameters that tell the pattern from others, such as {"bytes", 1024}.
  std::vector<std::pair<std::string, int64_t>> parameters;
  // The first is Cohort's; the others are compared with it.
  std::vector<PatternImplementation> implementations;
};

struct ComparisonOptions {
  int rounds = 9;
  // The approximate time of each implementation in each round.
  absl::Duration time = absl::Milliseconds(60);
};

// All ranks call it. In each round every implementation runs once, and each round begins with the
// next implementation. The time of a round is that of the slowest rank, for one step. Rows, on all
// ranks: section, pattern, members, parameters, implementation, median_us, min_us, max_us, steps,
// and times_cohort, the implementation's median over that of the first.
absl::StatusOr<std::vector<Row>> Run(client::Group& group, const Comparison& comparison,
                                     const ComparisonOptions& options);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PATTERNS_COMPARISON_H_
