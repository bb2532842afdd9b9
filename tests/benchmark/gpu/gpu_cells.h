// One cell of the GPU benchmark: an operation and a size, by all contenders in turn.
#ifndef COHORT_TESTS_BENCHMARK_GPU_GPU_CELLS_H_
#define COHORT_TESTS_BENCHMARK_GPU_GPU_CELLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/report.h"
#include "worker/communicator/nccl/benchmark/device_contender.h"

namespace cohort::benchmark {

struct GpuMeasureOptions {
  int rounds = 15;
  // Of one contender in one round, of one mode: as many calls as fit.
  absl::Duration burst = absl::Milliseconds(5);
  int most_calls = 500;
};

// One of a contender's ways to call:
//
//   blocking   each call is waited for before the next: what a caller waits for one
//   queued     calls one behind the other, waited for in the end: what one costs the device, or the
//              host if that is slower
//   enqueue    of those, until the last call returned: what one costs the caller
struct GpuResult {
  std::string implementation;
  std::string mode;
  std::vector<double> seconds;  // of a call, by round
  int calls = 0;                // in each
  absl::Status status;          // of what failed, and is not measured any further
};

// In each round every contender runs once in each mode, so that drift hits all alike. A contender
// that has only calls that wait has one result.
std::vector<GpuResult> MeasureGpuCell(
    const GpuMeasureOptions& options, DeviceOperation operation, int64_t bytes,
    const std::vector<std::unique_ptr<DeviceContender>>& contenders);

// {"section":"gpu","operation","members":1,"bytes","implementation","memory":"device","mode",
// "median_us","min_us","max_us","calls","rounds","times_nccl"}: the last is the median over that of
// "nccl" in the same cell and mode. Without those that have failed.
std::vector<Row> RowsOf(DeviceOperation operation, int64_t bytes,
                        const std::vector<GpuResult>& results);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_GPU_GPU_CELLS_H_
