#include "tests/benchmark/gpu/gpu_measurement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::benchmark {
namespace {

constexpr int kWarmUp = 3;
constexpr char kNccl[] = "nccl";

// One implementation, measured at one operation and size.
class MeasuredImplementation {
 public:
  MeasuredImplementation(const GpuMeasureOptions& options, DeviceImplementation& implementation)
      : options_(options), implementation_(implementation) {
    for (const char* const mode : {"blocking", "queued", "enqueue"}) {
      results_.push_back({implementation.name(), mode});
    }
  }

  void Begin(Collective operation, int64_t bytes) { Note(WarmUp(operation, bytes)); }
  void Run() {
    if (status_.ok()) Note(RunOnce());
  }
  void End() {
    if (status_.ok()) Note(implementation_.Verify());
    for (GpuResult& result : results_) {
      result.calls = calls_;
      result.status = status_;
    }
    // An implementation that cannot queue has only the blocking result.
    if (!queues_) results_.resize(1);
  }
  std::vector<GpuResult> results() && { return std::move(results_); }

 private:
  void Note(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  absl::Status WarmUp(Collective operation, int64_t bytes) {
    COHORT_RETURN_IF_ERROR(implementation_.Prepare(operation, bytes));
    COHORT_RETURN_IF_ERROR(implementation_.RunBlocking(kWarmUp).status());
    const absl::Status queued = implementation_.RunQueued(kWarmUp).status();
    queues_ = !absl::IsUnimplemented(queued);
    if (queues_) COHORT_RETURN_IF_ERROR(queued);
    COHORT_RETURN_IF_ERROR(implementation_.Verify());
    COHORT_ASSIGN_OR_RETURN(const absl::Duration took, implementation_.RunBlocking(kWarmUp));
    const double fits = absl::FDivDuration(options_.burst, took) * kWarmUp;
    calls_ = static_cast<int>(std::clamp(fits, 1.0, static_cast<double>(options_.most_calls)));
    return absl::OkStatus();
  }

  absl::Status RunOnce() {
    COHORT_ASSIGN_OR_RETURN(const absl::Duration blocking, implementation_.RunBlocking(calls_));
    Add(0, blocking);
    if (!queues_) return absl::OkStatus();
    COHORT_ASSIGN_OR_RETURN(const DeviceImplementation::Queued queued,
                            implementation_.RunQueued(calls_));
    Add(1, queued.done);
    Add(2, queued.enqueued);
    return absl::OkStatus();
  }
  void Add(size_t mode, absl::Duration took) {
    results_[mode].seconds.push_back(absl::ToDoubleSeconds(took) / calls_);
  }

  const GpuMeasureOptions& options_;
  DeviceImplementation& implementation_;
  bool queues_ = false;
  int calls_ = 1;
  absl::Status status_;
  std::vector<GpuResult> results_;
};

}  // namespace

std::vector<GpuResult> MeasureGpuOperation(
    const GpuMeasureOptions& options, Collective operation, int64_t bytes,
    const std::vector<std::unique_ptr<DeviceImplementation>>& implementations) {
  std::vector<MeasuredImplementation> measured;
  for (const auto& implementation : implementations)
    measured.emplace_back(options, *implementation);
  for (MeasuredImplementation& each : measured) each.Begin(operation, bytes);
  for (int round = 0; round < options.rounds; ++round) {
    for (MeasuredImplementation& each : measured) each.Run();
  }
  std::vector<GpuResult> results;
  for (MeasuredImplementation& each : measured) {
    each.End();
    for (GpuResult& result : std::move(each).results()) results.push_back(std::move(result));
  }
  return results;
}

std::vector<Row> RowsOf(Collective operation, int64_t bytes,
                        const std::vector<GpuResult>& results) {
  std::map<std::string, double> of_nccl;
  for (const GpuResult& result : results) {
    if (result.implementation == kNccl && result.status.ok()) {
      of_nccl[result.mode] = Median(result.seconds);
    }
  }
  std::vector<Row> rows;
  for (const GpuResult& result : results) {
    if (!result.status.ok() || result.seconds.empty()) continue;
    const auto [min, max] = std::minmax_element(result.seconds.begin(), result.seconds.end());
    const double median = Median(result.seconds);
    Row row;
    row["section"] = "gpu";
    row["operation"] = std::string(NameOf(operation));
    row["members"] = 1;
    row["bytes"] = bytes;
    row["implementation"] = result.implementation;
    row["memory"] = "device";
    row["mode"] = result.mode;
    row["median_us"] = Rounded(median * 1e6, 3);
    row["min_us"] = Rounded(*min * 1e6, 3);
    row["max_us"] = Rounded(*max * 1e6, 3);
    row["calls"] = result.calls;
    row["rounds"] = result.seconds.size();
    if (const double nccl = of_nccl[result.mode]; nccl > 0) {
      row["times_nccl"] = Rounded(median / nccl, 2);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::benchmark
