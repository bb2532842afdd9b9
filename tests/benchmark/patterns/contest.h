// One communication pattern, run in several ways by the same ranks, in turns.
#ifndef COHORT_TESTS_BENCHMARK_PATTERNS_CONTEST_H_
#define COHORT_TESTS_BENCHMARK_PATTERNS_CONTEST_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "tests/benchmark/report.h"

namespace cohort::benchmark {

struct Contender {
  std::string name;
  // One step of this rank; all ranks run equally many.
  std::function<absl::Status()> step;
};

struct Contest {
  std::string pattern;
  // Other facts that tell the pattern from others, such as {"bytes", 1024}.
  std::vector<std::pair<std::string, int64_t>> facts;
  // The first is Cohort's; the others are compared with it.
  std::vector<Contender> contenders;
};

struct ContestOptions {
  int rounds = 9;
  // The approximate time of each contender in each round.
  absl::Duration time = absl::Milliseconds(60);
};

// All ranks call it. In each round every contender runs once, and each round begins with the next
// contender. The time of a round is that of the slowest rank, for one step. Rows, on all ranks:
// section, pattern, members, facts, implementation, median_us, min_us, max_us, steps, and
// times_ours, the contender's median over that of the first.
absl::StatusOr<std::vector<Row>> Run(client::Group& group, const Contest& contest,
                                     const ContestOptions& options);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PATTERNS_CONTEST_H_
