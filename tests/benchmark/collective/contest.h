// One cell: all entrants, interleaved, so that drift hits all alike.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_CONTEST_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_CONTEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/collective/field.h"
#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {

struct ContestOptions {
  absl::Duration burst = absl::Milliseconds(25);  // about the time of one burst of one entrant
  int64_t min_iterations = 3;                     // in each burst, however long that takes
  int rounds = 9;
  int min_rounds = 3;
  // An entrant that has run this long drops out once it has `min_rounds`.
  absl::Duration budget = absl::Milliseconds(1500);
};

// A row of the table: the best entrant of an implementation.
struct Result {
  std::string implementation;
  bool names_memory = false;
  Memory memory = Memory::kPlain;
  std::string label;  // of the best, where there were several
  int64_t iterations = 0;
  std::vector<double> seconds;  // for each iteration, one for each round
  absl::Status status;          // not OK: no entrant has come through
};

// First makes each entrant ready, verifies it, and times it shortly; entrants far behind the best
// of their row stop. Then, in each round, every remaining entrant runs a burst. An entrant that
// fails is out, and its team starts anew; failures are counted in `entrants` and written to
// standard error. Returns early, without results, when a stop signal has come.
std::vector<Result> RunContest(const ContestOptions& options, Collective collective, int64_t bytes,
                               std::vector<Entrant>& entrants);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_CONTEST_H_
