#include "client/perf/measure.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "client/perf/pattern.h"
#include "client/perf/work.h"

namespace cohort::perf {
namespace {

constexpr int kMinIterations = 5;
constexpr int kMaxIterations = 2000;

// Of the single calls, in microseconds.
absl::StatusOr<std::vector<double>> Time(const Work& work, int calls, const Clock& clock) {
  std::vector<double> times(static_cast<size_t>(calls));
  Instant before = clock.Now();
  for (double& time : times) {
    COHORT_RETURN_IF_ERROR(work.Run());
    const Instant after = clock.Now();
    time = absl::ToDoubleMicroseconds(after - before);
    before = after;
  }
  return times;
}

double Median(std::vector<double> times) {
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Rank 0 decides, all do so many.
absl::StatusOr<int> Iterations(client::Group& group, const MeasureOptions& options,
                               double call_us) {
  if (options.iterations > 0) return options.iterations;
  const Tensor number = Tensor::Zeros(DataType::kI32, {1});
  auto* const iterations = static_cast<int32_t*>(number.data());
  const double wanted = absl::ToDoubleMicroseconds(options.duration) / std::max(call_us, 0.1);
  *iterations =
      static_cast<int32_t>(std::clamp(wanted, double{kMinIterations}, double{kMaxIterations}));
  COHORT_RETURN_IF_ERROR(group.Broadcast(number, 0));
  return *iterations;
}

// Of the slowest rank, and everybody's wrong elements.
absl::Status Agree(client::Group& group, Figures& figures) {
  const Tensor times = Tensor::Zeros(DataType::kF64, {3});
  auto* const time = static_cast<double*>(times.data());
  time[0] = figures.median_us;
  time[1] = figures.mean_us;
  time[2] = figures.min_us;
  COHORT_RETURN_IF_ERROR(group.AllReduce(times, times, {ReduceOp::kMax}));
  figures.median_us = time[0];
  figures.mean_us = time[1];
  figures.min_us = time[2];
  if (!figures.wrong.has_value()) return absl::OkStatus();
  const Tensor wrong = Tensor::Zeros(DataType::kI64, {1});
  auto* const count = static_cast<int64_t*>(wrong.data());
  *count = *figures.wrong;
  COHORT_RETURN_IF_ERROR(group.AllReduce(wrong, wrong, {ReduceOp::kSum}));
  figures.wrong = *count;
  return absl::OkStatus();
}

absl::StatusOr<Figures> MeasureOneWay(client::Group& group, const Case& run, bool in_place,
                                      const MeasureOptions& options, const Clock& clock) {
  COHORT_ASSIGN_OR_RETURN(const Work work, Work::Make(group, run, in_place, options.registered));
  const auto pattern = [&](int round) {
    return Pattern(run.type, run.reduction, group.size(), static_cast<uint64_t>(round));
  };
  work.Fill(pattern(0));
  COHORT_ASSIGN_OR_RETURN(const std::vector<double> warm, Time(work, options.warmup, clock));
  Figures figures;
  COHORT_ASSIGN_OR_RETURN(figures.iterations, Iterations(group, options, Median(warm)));
  const Instant begin = clock.Now();
  COHORT_ASSIGN_OR_RETURN(const std::vector<double> times, Time(work, figures.iterations, clock));
  figures.mean_us = absl::ToDoubleMicroseconds(clock.Now() - begin) / figures.iterations;
  figures.median_us = Median(times);
  figures.min_us = *std::min_element(times.begin(), times.end());
  // Not while it is timed: the comparison would be in the caches' way.
  for (int round = 1; round <= options.checks; ++round) {
    const Pattern numbers = pattern(round);
    work.Fill(numbers);
    COHORT_RETURN_IF_ERROR(work.Run());
    figures.wrong = figures.wrong.value_or(0) + work.CountWrong(numbers);
  }
  COHORT_RETURN_IF_ERROR(Agree(group, figures));
  return figures;
}

}  // namespace

absl::StatusOr<Row> Measure(client::Group& group, const Case& run, const MeasureOptions& options,
                            const Clock& clock) {
  Row row = {run};
  if (RunsOutOfPlace(run.operation)) {
    COHORT_ASSIGN_OR_RETURN(row.out_of_place, MeasureOneWay(group, run, false, options, clock));
  }
  if (RunsInPlace(run.operation)) {
    COHORT_ASSIGN_OR_RETURN(row.in_place, MeasureOneWay(group, run, true, options, clock));
  }
  return row;
}

}  // namespace cohort::perf
