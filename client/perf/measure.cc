#include "client/perf/measure.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "client/perf/pattern.h"
#include "client/perf/prepared_case.h"

namespace cohort::perf {
namespace {

constexpr int kFewestBatches = 5;
constexpr int kWantedBatches = 10;
constexpr int kLargestBatch = 10000;
// Limits calls that end before the clock moves.
constexpr int kMostBatches = 100;

// The average microseconds of each call of a batch.
absl::StatusOr<double> TimeBatch(const Work& work, int calls, const Clock& clock) {
  const Instant begin = clock.Now();
  for (int i = 0; i < calls; ++i) COHORT_RETURN_IF_ERROR(work.Run());
  return absl::ToDoubleMicroseconds(clock.Now() - begin) / calls;
}

// Chooses the size of the next batch; rank 0 decides for all.
class Pace {
 public:
  explicit Pace(const MeasureOptions& options) : options_(options) {}

  // 0: enough calls. `call_us` is the last time of a call, `spent` the time of all timed calls.
  int Next(int calls_done, int batches_done, double call_us, absl::Duration spent) const {
    if (options_.iterations > 0) {
      const int batch = (options_.iterations + kWantedBatches - 1) / kWantedBatches;
      return std::min(batch, options_.iterations - calls_done);
    }
    if (batches_done >= kFewestBatches && spent >= options_.duration) return 0;
    if (batches_done >= kMostBatches) return 0;
    const double batch_us = absl::ToDoubleMicroseconds(options_.duration) / kWantedBatches;
    return static_cast<int>(
        std::clamp(batch_us / std::max(call_us, 0.01), 1.0, static_cast<double>(kLargestBatch)));
  }

 private:
  const MeasureOptions& options_;
};

// The times of the slowest rank in each batch, in microseconds, and the numbers of calls.
struct Batches {
  std::vector<double> call_us;
  std::vector<int> calls;
};

// Single calls are no measure. If data may wait for its reader, a rank runs ahead of the others. If
// ranks share a processor, most calls find everything done, and a few wait for long. So batches are
// timed, and all ranks begin them together.
absl::StatusOr<Batches> TimeBatches(client::Group& group, const Work& work,
                                    const MeasureOptions& options, const Clock& clock) {
  COHORT_ASSIGN_OR_RETURN(double call_us, TimeBatch(work, options.warmup, clock));
  const Pace pace(options);
  const Tensor order = Tensor::Zeros(DataType::kI32, {1});
  auto* const next = static_cast<int32_t*>(order.data());
  Batches batches;
  int done = 0;
  absl::Duration spent;
  while (true) {
    *next = pace.Next(done, static_cast<int>(batches.calls.size()), call_us, spent);
    COHORT_RETURN_IF_ERROR(group.Broadcast(order, 0));
    const int calls = *next;
    if (calls == 0) break;
    COHORT_ASSIGN_OR_RETURN(call_us, TimeBatch(work, calls, clock));
    spent += absl::Microseconds(call_us * calls);
    done += calls;
    batches.calls.push_back(calls);
    batches.call_us.push_back(call_us);
  }
  const auto count = static_cast<int64_t>(batches.call_us.size());
  const Tensor slowest(batches.call_us.data(), DataType::kF64, {count});
  COHORT_RETURN_IF_ERROR(group.AllReduce(slowest, slowest, {ReduceOp::kMax}));
  return batches;
}

double Median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

Figures Summarize(const Batches& batches) {
  Figures figures;
  double total_us = 0;
  for (size_t i = 0; i < batches.calls.size(); ++i) {
    figures.iterations += batches.calls[i];
    total_us += batches.call_us[i] * batches.calls[i];
  }
  figures.mean_us = total_us / figures.iterations;
  figures.median_us = Median(batches.call_us);
  figures.min_us = *std::min_element(batches.call_us.begin(), batches.call_us.end());
  return figures;
}

absl::StatusOr<int64_t> SumOfAll(client::Group& group, int64_t own) {
  const Tensor sum = Tensor::Zeros(DataType::kI64, {1});
  *static_cast<int64_t*>(sum.data()) = own;
  COHORT_RETURN_IF_ERROR(group.AllReduce(sum, sum, {ReduceOp::kSum}));
  return *static_cast<int64_t*>(sum.data());
}

absl::StatusOr<Figures> MeasureOneWay(client::Group& group, const Case& run, bool in_place,
                                      const MeasureOptions& options, const Clock& clock) {
  COHORT_ASSIGN_OR_RETURN(const Work work, Work::Make(group, run, in_place, options));
  const auto pattern = [&](int round) {
    return Pattern(run.type, run.reduction, group.size(), static_cast<uint64_t>(round));
  };
  COHORT_RETURN_IF_ERROR(work.Fill(pattern(0)));
  COHORT_ASSIGN_OR_RETURN(const Batches batches, TimeBatches(group, work, options, clock));
  Figures figures = Summarize(batches);
  if (options.checks == 0) return figures;
  int64_t wrong = 0;
  // Not while calls are timed: the comparison would displace the caches.
  for (int round = 1; round <= options.checks; ++round) {
    const Pattern numbers = pattern(round);
    COHORT_RETURN_IF_ERROR(work.Fill(numbers));
    COHORT_RETURN_IF_ERROR(work.Run());
    COHORT_ASSIGN_OR_RETURN(const int64_t of_round, work.CountWrong(numbers));
    wrong += of_round;
  }
  COHORT_ASSIGN_OR_RETURN(figures.wrong, SumOfAll(group, wrong));
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
