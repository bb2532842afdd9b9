// Compares all variants at one operation and size, interleaved, so that drift hits all alike.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_COMPARISON_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_COMPARISON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/collective/implementations.h"
#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {

struct ComparisonOptions {
  absl::Duration burst = absl::Milliseconds(25);  // about the time of one burst of one variant
  int64_t min_iterations = 3;                     // in each burst, however long that takes
  int rounds = 9;
  int min_rounds = 3;
  // A variant that has run this long drops out once it has `min_rounds`.
  absl::Duration budget = absl::Milliseconds(1500);
};

// A row of the table: the best variant of an implementation.
struct Result {
  std::string implementation;
  bool names_memory = false;
  Memory memory = Memory::kPlain;
  std::string label;  // of the best, where there were several
  int64_t iterations = 0;
  std::vector<double> seconds;  // for each iteration, one for each round
  absl::Status status;          // not OK: no variant has come through
};

// First makes each variant ready, verifies it, and times it shortly; variants far behind the best
// of their row stop. Then, in each round, every remaining variant runs a burst. A variant that
// fails is out, and its processes starts anew; failures are counted in `variants` and written to
// standard error. Returns early, without results, when a stop signal has come.
std::vector<Result> RunComparison(const ComparisonOptions& options, Collective collective,
                                  int64_t bytes, std::vector<Variant>& variants);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_COMPARISON_H_
