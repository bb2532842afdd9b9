// Promises about memory, diagnosis and shutdown, measured. Each starts a coordinator of its own.
#ifndef COHORT_TESTS_BENCHMARK_CLAIMS_H_
#define COHORT_TESTS_BENCHMARK_CLAIMS_H_

#include "absl/status/statusor.h"
#include "tests/benchmark/coordinator_process.h"
#include "tests/benchmark/report.h"

namespace cohort::benchmark {

// The fields that all rows begin with.
Row ClaimRow(const char* operation, int members, const CoordinatorOptions& options);

// Each returns one row {"section":"claims","operation",...}; its "holds" says whether the promise
// was kept.

// 8 members, a million barriers back to back: the coordinator's memory after 10,000 of them and at
// the end.
absl::StatusOr<Row> MillionBarriers(const CoordinatorOptions& options, bool quick);

// 2,001 members of which 2,000 wait: memory per parked call, the members' own cost taken off.
absl::StatusOr<Row> ParkedCost(const CoordinatorOptions& options, bool quick);

// 1,000 members of which 17, by a seeded draw, stay away from a barrier with a wait of 2 s: who is
// named, and how late after the wait the answers come.
absl::StatusOr<Row> Missing(const CoordinatorOptions& options, bool quick);

// A thousand parked calls (half of them joins, half reads of absent keys) and a SIGTERM: how many
// the coordinator itself answers, its exit code, the time until both.
absl::StatusOr<Row> Sigterm(const CoordinatorOptions& options, bool quick);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_CLAIMS_H_
