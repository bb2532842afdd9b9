// One piece of work of the collective benchmark: an operation, a size, and the kind of memory.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_WORK_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_WORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/collective/collective.h"

namespace cohort::benchmark {

// All elements are fp32; reductions are sums, into memory other than the inputs'. With P members
// and a size of n bytes, a member has
//
//   operation        input           output          content of the output
//   all_reduce       n               n               the sum of all inputs
//   reduce_scatter   n               n / P           its part of the sum of all inputs
//   broadcast        n, rank 0 only  n, all others   rank 0's input
//   all_gather       n               n * P           all inputs, by rank
//   all_to_all       n               n               block `rank` of each rank's n / P bytes blocks
//   sendrecv         n               n               the input of the rank before, in a ring
//
// In Collective, sendrecv is kExchange.
//
// If n is no whole number of elements for each member (8 bytes in reduce_scatter and all_to_all of
// four), it is rounded up to one.
// The memory of inputs and outputs: the caller's own, or memory that the implementation hands out.
enum class Memory { kPlain, kRegistered };

struct Work {
  Collective collective = Collective::kAllReduce;
  int64_t bytes = 0;
  Memory memory = Memory::kPlain;
  std::string algorithm;  // where an implementation has several; else empty
};

std::vector<Collective> AllCollectives();
std::string CollectiveName(Collective collective);
absl::StatusOr<Collective> ParseCollective(absl::string_view name);
std::string MemoryName(Memory memory);

// The text that members get: "all_reduce 65536 plain ring". An algorithm has no blanks.
std::string FormatWork(const Work& work);
absl::StatusOr<Work> ParseWork(absl::string_view text);

// In elements.
struct Extents {
  int64_t input = 0;
  int64_t output = 0;
};
Extents ExtentsOf(const Work& work, int rank, int members);

// In elements: the block that one member gives to another in reduce_scatter and all_to_all.
int64_t BlockElements(const Work& work, int members);

// Bytes that must cross the busiest link, whatever the algorithm: "bus bandwidth" is this over
// the time, as nccl-tests defines it.
double BusBytes(const Work& work, int members);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_WORK_H_
