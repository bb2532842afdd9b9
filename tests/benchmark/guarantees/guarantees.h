// Measures the guarantees about memory, diagnosis and shutdown. Each function starts a coordinator
// of its own.
#ifndef COHORT_TESTS_BENCHMARK_GUARANTEES_GUARANTEES_H_
#define COHORT_TESTS_BENCHMARK_GUARANTEES_GUARANTEES_H_

#include "absl/status/statusor.h"
#include "tests/benchmark/harness/coordinator_process.h"
#include "tests/benchmark/harness/report.h"

namespace cohort::benchmark {

// The fields that all rows begin with.
Row GuaranteeRow(const char* operation, int members, const CoordinatorOptions& options);

// Each returns one row {"section":"guarantees","operation",...}; its "holds" says whether the
// guarantee holds.

// Runs a million barriers of 8 members back to back, and compares the coordinator's memory after
// 10,000 of them and at the end.
absl::StatusOr<Row> MillionBarriers(const CoordinatorOptions& options, bool quick);

// 2,001 members, of which 2,000 wait: the memory of a parked call, without the cost of the members.
absl::StatusOr<Row> ParkedCost(const CoordinatorOptions& options, bool quick);

// 17 of 1,000 members, by a seeded draw, stay away from a barrier with a wait of 2 s. The row has
// the named members and how late after the wait the answers come.
absl::StatusOr<Row> Missing(const CoordinatorOptions& options, bool quick);

// A SIGTERM with a thousand parked calls, half of them joins and half reads of absent keys. The row
// has the number of calls that the coordinator itself answers, its exit code, and the time until
// both.
absl::StatusOr<Row> Sigterm(const CoordinatorOptions& options, bool quick);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_GUARANTEES_GUARANTEES_H_
