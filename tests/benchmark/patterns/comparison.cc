#include "tests/benchmark/patterns/comparison.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kMostSteps = 20000;

// The time of `steps` steps, on the slowest rank.
absl::StatusOr<absl::Duration> Time(client::Group& group,
                                    const PatternImplementation& implementation, int64_t steps) {
  COHORT_RETURN_IF_ERROR(group.ExchangeSizes(0).status());
  const Instant begin = Clock::Steady().Now();
  for (int64_t i = 0; i < steps; ++i) {
    const absl::Status status = implementation.step();
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(implementation.name, ": ", status.message()));
    }
  }
  const absl::Duration own = Clock::Steady().Now() - begin;
  COHORT_ASSIGN_OR_RETURN(const client::Sizes all,
                          group.ExchangeSizes(absl::ToInt64Nanoseconds(own)));
  return absl::Nanoseconds(*std::max_element(all.begin(), all.end()));
}

}  // namespace

absl::StatusOr<std::vector<Row>> Run(client::Group& group, const Comparison& comparison,
                                     const ComparisonOptions& options) {
  const size_t count = comparison.implementations.size();
  std::vector<int64_t> steps(count, 1);
  for (size_t i = 0; i < count; ++i) {
    // All ranks have the same times, and so the same numbers of steps.
    absl::Duration taken;
    while (steps[i] < kMostSteps) {
      COHORT_ASSIGN_OR_RETURN(taken, Time(group, comparison.implementations[i], steps[i]));
      if (taken >= options.time / 2) break;
      steps[i] *= taken < options.time / 20 ? 8 : 2;
    }
  }
  std::vector<std::vector<absl::Duration>> samples(count);
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t step = 0; step < count; ++step) {
      const size_t i = (step + static_cast<size_t>(round)) % count;
      COHORT_ASSIGN_OR_RETURN(const absl::Duration taken,
                              Time(group, comparison.implementations[i], steps[i]));
      samples[i].push_back(taken / steps[i]);
    }
  }
  std::vector<Row> rows;
  const double cohort = Summarise(samples[0]).median_us;
  for (size_t i = 0; i < count; ++i) {
    const Summary summary = Summarise(samples[i]);
    Row row = {{"section", "patterns"}, {"pattern", comparison.pattern}, {"members", group.size()}};
    for (const auto& [name, value] : comparison.parameters) row[name] = value;
    row["implementation"] = comparison.implementations[i].name;
    row["median_us"] = Rounded(summary.median_us, 3);
    row["min_us"] = Rounded(summary.min_us, 3);
    row["max_us"] = Rounded(summary.max_us, 3);
    row["steps"] = steps[i] * options.rounds;
    row["times_cohort"] = Rounded(cohort > 0 ? summary.median_us / cohort : 0, 2);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::benchmark
