// A coordinator for one measurement, and its address.
#ifndef COHORT_TESTS_BENCHMARK_HARNESS_COORDINATOR_PROCESS_H_
#define COHORT_TESTS_BENCHMARK_HARNESS_COORDINATOR_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/benchmark/harness/child_process.h"

namespace cohort::benchmark {

struct CoordinatorOptions {
  std::string program;             // the path of cohort-coordinator
  std::string journal = "memory";  // or "sqlite", in a file in `scratch`
  std::string scratch = "/tmp";    // log, port file, journal; each start takes new names
  std::vector<std::string> more_arguments;
};

struct CoordinatorProcess {
  std::unique_ptr<ChildProcess> process;
  std::string address;
};

// On a free port of 127.0.0.1, without metrics.
absl::StatusOr<CoordinatorProcess> StartCoordinator(const CoordinatorOptions& options);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_HARNESS_COORDINATOR_PROCESS_H_
