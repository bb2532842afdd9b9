// Interleaved measurement: in each repetition every measurement runs once, so that drift hits all
// alike.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_MEASURE_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_MEASURE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

struct MeasureOptions {
  int repetitions = 50;
  int min_repetitions = 3;
  int warm_up = 3;
  // A measurement that has measured this long drops out once it has `min_repetitions`.
  absl::Duration budget = absl::Seconds(3);
};

struct Measurement {
  std::string name;
  std::string journal;
  Operation run;

  // Results.
  std::vector<absl::Duration> latencies;
  std::vector<double> ops_per_s;
  absl::Duration spent;
  int repetitions = 0;
  absl::Status status;
};

// Fills the results. A measurement that fails is not run again and keeps its status.
void MeasureInterleaved(const MeasureOptions& options, std::vector<Measurement>& measurements);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_MEASURE_H_
