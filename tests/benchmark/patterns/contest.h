// One pattern of communication, done in several ways by the same ranks, in turns.
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
  // One step of this rank; all ranks do as many.
  std::function<absl::Status()> step;
};

struct Contest {
  std::string pattern;
  // What else tells it from others, such as {"bytes", 1024}.
  std::vector<std::pair<std::string, int64_t>> facts;
  // The first is ours; the others are what it is measured against.
  std::vector<Contender> contenders;
};

struct ContestOptions {
  int rounds = 9;
  // Of each contender in each round, about.
  absl::Duration time = absl::Milliseconds(60);
};

// All ranks call it. In each round every contender runs once, and another one first; a round's time
// is that of the slowest rank, for one step. Rows, on all ranks: section, pattern, members, facts,
// implementation, median_us, min_us, max_us, steps, and times_ours, the contender's median over
// ours.
absl::StatusOr<std::vector<Row>> Run(client::Group& group, const Contest& contest,
                                     const ContestOptions& options);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PATTERNS_CONTEST_H_
