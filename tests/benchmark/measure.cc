#include "tests/benchmark/measure.h"

#include "tests/benchmark/timing.h"

namespace cohort::benchmark {
namespace {

// A slow contender is warm after one run.
void WarmUp(const MeasureOptions& options, Contender& contender) {
  const SteadyTime start = Now();
  for (int i = 0; i < options.warm_up && contender.status.ok(); ++i) {
    contender.status = contender.run().status();
    if (absl::FromChrono(Now() - start) > options.budget / 4) return;
  }
}

void RunOnce(Contender& contender) {
  const SteadyTime start = Now();
  absl::StatusOr<Sample> sample = contender.run();
  contender.spent += absl::FromChrono(Now() - start);
  if (!sample.ok()) {
    contender.status = sample.status();
    return;
  }
  ++contender.repetitions;
  contender.latencies.insert(contender.latencies.end(), sample->latencies.begin(),
                             sample->latencies.end());
  if (sample->ops_per_s > 0) contender.ops_per_s.push_back(sample->ops_per_s);
}

}  // namespace

void MeasureInterleaved(const MeasureOptions& options, std::vector<Contender>& contenders) {
  for (Contender& contender : contenders) WarmUp(options, contender);
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (Contender& contender : contenders) {
      if (!contender.status.ok()) continue;
      if (contender.spent > options.budget && contender.repetitions >= options.min_repetitions) {
        continue;
      }
      RunOnce(contender);
    }
  }
}

}  // namespace cohort::benchmark
