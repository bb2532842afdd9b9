// Cohort as an implementation of the benchmark: its client library and its coordinator.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_COHORT_IMPLEMENTATION_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_COHORT_IMPLEMENTATION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/benchmark/harness/coordinator_process.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

// Starts a coordinator for it. Groups and connections have the library's defaults.
//
// `certificates`: a folder of deploy/certificates.sh with the certificates `coordinator` and
// `rank`. Coordinator and clients then use mutual TLS. Empty: plain text.
absl::StatusOr<std::unique_ptr<Implementation>> StartCohort(const CoordinatorOptions& options,
                                                            const std::string& certificates = "");

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_COHORT_IMPLEMENTATION_H_
