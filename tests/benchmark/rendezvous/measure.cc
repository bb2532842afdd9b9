#include "tests/benchmark/rendezvous/measure.h"

#include "tests/benchmark/rendezvous/timing.h"

namespace cohort::benchmark {
namespace {

// A slow measurement is warm after one run.
void WarmUp(const MeasureOptions& options, Measurement& measurement) {
  const SteadyTime start = Now();
  for (int i = 0; i < options.warm_up && measurement.status.ok(); ++i) {
    measurement.status = measurement.run().status();
    if (absl::FromChrono(Now() - start) > options.budget / 4) return;
  }
}

void RunOnce(Measurement& measurement) {
  const SteadyTime start = Now();
  absl::StatusOr<Sample> sample = measurement.run();
  measurement.spent += absl::FromChrono(Now() - start);
  if (!sample.ok()) {
    measurement.status = sample.status();
    return;
  }
  ++measurement.repetitions;
  measurement.latencies.insert(measurement.latencies.end(), sample->latencies.begin(),
                               sample->latencies.end());
  if (sample->ops_per_s > 0) measurement.ops_per_s.push_back(sample->ops_per_s);
}

}  // namespace

void MeasureInterleaved(const MeasureOptions& options, std::vector<Measurement>& measurements) {
  for (Measurement& measurement : measurements) WarmUp(options, measurement);
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (Measurement& measurement : measurements) {
      if (!measurement.status.ok()) continue;
      if (measurement.spent > options.budget &&
          measurement.repetitions >= options.min_repetitions) {
        continue;
      }
      RunOnce(measurement);
    }
  }
}

}  // namespace cohort::benchmark
