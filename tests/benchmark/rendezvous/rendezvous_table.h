// The table of the rendezvous benchmark: which configurations are measured, and one row for each
// configuration and implementation.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_RENDEZVOUS_TABLE_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_RENDEZVOUS_TABLE_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/benchmark/harness/report.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

struct RendezvousOptions {
  bool quick = false;
  std::vector<std::string> operations;  // empty: all
  std::vector<int> members;             // empty: all
};

// Each row:
// {"section":"rendezvous","operation","members","bytes","implementation","median_us","min_us",
// "max_us","connections","transport","repetitions"}, with "journal", "ops_per_s" and
// "times_bare_grpc" (the median over that of bare-grpc in the same configuration) where they apply.
// `implementations` run in the order given. Failures go to standard error; returns how many there
// were.
int RunRendezvous(const RendezvousOptions& options,
                  const std::vector<std::unique_ptr<Implementation>>& implementations,
                  Report& report);

// One descriptor per member and implementation adds up: raises the soft limit to the hard one.
void RaiseDescriptorLimit();

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_RENDEZVOUS_TABLE_H_
