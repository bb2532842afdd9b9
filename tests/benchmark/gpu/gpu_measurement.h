// Measures one operation and size on a GPU, by all implementations in turn.
#ifndef COHORT_TESTS_BENCHMARK_GPU_GPU_MEASUREMENT_H_
#define COHORT_TESTS_BENCHMARK_GPU_GPU_MEASUREMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/harness/report.h"
#include "worker/communicator/nccl/benchmark/device_implementation.h"

namespace cohort::benchmark {

struct GpuMeasureOptions {
  int rounds = 15;
  // The time of one implementation in one round and mode; as many calls run as fit.
  absl::Duration burst = absl::Milliseconds(5);
  int most_calls = 500;
};

// The modes in which an implementation calls:
//
//   blocking   waits for each call before the next: the time that a caller waits for one call
//   queued     enqueues the calls and waits once, at the end: the cost of a call on the device, or
//              on the host if that is slower
//   enqueue    the queued calls until the last one returned: the cost of a call for its caller
struct GpuResult {
  std::string implementation;
  std::string mode;
  std::vector<double> seconds;  // of a call, by round
  int calls = 0;                // in each
  absl::Status status;          // the failure after which the implementation is measured no further
};

// In each round every implementation runs once in each mode, so that drift hits all alike. A
// implementation that has only blocking calls has one result.
std::vector<GpuResult> MeasureGpuOperation(
    const GpuMeasureOptions& options, Collective operation, int64_t bytes,
    const std::vector<std::unique_ptr<DeviceImplementation>>& implementations);

// {"section":"gpu","operation","members":1,"bytes","implementation","memory":"device","mode",
// "median_us","min_us","max_us","calls","rounds","times_nccl"}. The last field is the median
// divided by that of "nccl" in the same operation, size and mode. Failed implementations have no
// rows.
std::vector<Row> RowsOf(Collective operation, int64_t bytes, const std::vector<GpuResult>& results);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_GPU_GPU_MEASUREMENT_H_
