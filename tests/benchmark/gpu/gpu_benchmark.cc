// Collectives on the memory of a GPU, one rank: what we add to NCCL's own calls.
//
//   gpu_benchmark [--json] [--sizes 8 65536 ...] [--operation all_reduce ...] [--quick]
//                 [--torch-python PYTHON --torch-script torch_implementation.py [--cohort-torch]]
//
// Without a GPU it says so and exits with 3.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/gpu/gpu_measurement.h"
#include "tests/benchmark/gpu/torch_implementation.h"
#include "tests/benchmark/harness/report.h"
#include "worker/communicator/nccl/benchmark/device_implementation.h"
#include "worker/communicator/nccl/benchmark/nccl_source.h"

namespace cohort::benchmark {
namespace {

constexpr int kNoDevice = 3;

struct Options {
  bool json = false;
  bool quick = false;
  std::vector<int64_t> sizes = {8,       64,      1 << 10,  4 << 10,  64 << 10,
                                1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
  std::vector<std::string> operations;
  TorchOptions torch;
  bool cohort_torch = false;
};

// A failure of PyTorch is reported, and the other implementations are measured.
void AddTorch(const Options& options, TorchBackend backend, int64_t most,
              std::vector<std::unique_ptr<DeviceImplementation>>* implementations) {
  absl::StatusOr<std::unique_ptr<DeviceImplementation>> torch =
      MakeTorchImplementation(options.torch, backend, most);
  if (torch.ok()) {
    implementations->push_back(*std::move(torch));
  } else {
    std::fprintf(stderr, "torch over %s is left out: %s\n",
                 backend == TorchBackend::kNccl ? "NCCL" : "Cohort",
                 torch.status().ToString().c_str());
  }
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceImplementation>>> MakeImplementations(
    const Options& options) {
  const int64_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<worker::NcclApi> nccl, LinkedNccl());
  std::fprintf(stderr, "NCCL %d of %s\n", nccl->version, nccl->source.c_str());
  std::vector<std::unique_ptr<DeviceImplementation>> implementations(2);
  COHORT_ASSIGN_OR_RETURN(implementations[0], MakeNcclImplementation(nccl, most));
  COHORT_ASSIGN_OR_RETURN(implementations[1], MakeCohortImplementation(nccl, most));
  if (options.torch.python.empty()) return implementations;
  AddTorch(options, TorchBackend::kNccl, most, &implementations);
  if (options.cohort_torch) AddTorch(options, TorchBackend::kCohort, most, &implementations);
  return implementations;
}

void PrintHeader() {
  std::printf("%-14s %10s %-14s %-9s %12s %12s %12s %7s\n", "operation", "bytes", "implementation",
              "mode", "median us", "min us", "max us", "x nccl");
}

void Print(const Row& row) {
  std::printf(
      "%-14s %10s %-14s %-9s %12.3f %12.3f %12.3f %7.2f\n", row.value("operation", "").c_str(),
      absl::StrCat(row.value("bytes", int64_t{0})).c_str(), row.value("implementation", "").c_str(),
      row.value("mode", "").c_str(), row.value("median_us", 0.0), row.value("min_us", 0.0),
      row.value("max_us", 0.0), row.value("times_nccl", 0.0));
  std::fflush(stdout);
}

// Returns the number of failed results.
int RunOperations(const Options& options,
                  const std::vector<std::unique_ptr<DeviceImplementation>>& implementations) {
  GpuMeasureOptions measure;
  if (options.quick) measure.rounds = 5;
  Report lines(/*json=*/true);
  if (!options.json) PrintHeader();
  int failures = 0;
  for (const Collective operation : kDeviceOperations) {
    const std::vector<std::string>& wanted = options.operations;
    if (!wanted.empty() &&
        std::find(wanted.begin(), wanted.end(), NameOf(operation)) == wanted.end()) {
      continue;
    }
    for (const int64_t bytes : options.sizes) {
      const std::vector<GpuResult> results =
          MeasureGpuOperation(measure, operation, bytes, implementations);
      for (const GpuResult& result : results) {
        if (result.status.ok()) continue;
        ++failures;
        std::fprintf(stderr, "%s of %s bytes, %s, %s: %s\n", NameOf(operation).data(),
                     absl::StrCat(bytes).c_str(), result.implementation.c_str(),
                     result.mode.c_str(), result.status.ToString().c_str());
      }
      for (const Row& row : RowsOf(operation, bytes, results)) {
        if (options.json) {
          lines.Add(row);
        } else {
          Print(row);
        }
      }
    }
  }
  return failures;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Collectives on the memory of a GPU, one rank.");
  app.add_flag("--json", options.json, "one JSON object per line");
  app.add_flag("--quick", options.quick, "fewer rounds, more noise");
  app.add_option("--sizes", options.sizes, "in bytes, multiples of 4")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
  app.add_option("--operation", options.operations)
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter", "broadcast"}));
  app.add_option("--torch-python", options.torch.python);
  app.add_option("--torch-script", options.torch.script);
  app.add_flag("--cohort-torch", options.cohort_torch,
               "PyTorch over Cohort, too; it finds the package `cohort`");
  CLI11_PARSE(app, argc, argv);
  if (const absl::Status gpu = CheckForGpu(); !gpu.ok()) {
    std::fprintf(stderr, "no GPU here: %s\n", std::string(gpu.message()).c_str());
    return kNoDevice;
  }
  const auto implementations = MakeImplementations(options);
  if (!implementations.ok()) {
    std::fprintf(stderr, "%s\n", implementations.status().ToString().c_str());
    return 1;
  }
  return RunOperations(options, *implementations) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) { return cohort::benchmark::Main(argc, argv); }
