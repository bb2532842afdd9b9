// The sizes of Cohort's own messages on the wire, so that the floor sends and answers as many
// bytes.
#ifndef COHORT_TESTS_BENCHMARK_WIRE_SIZES_H_
#define COHORT_TESTS_BENCHMARK_WIRE_SIZES_H_

#include <cstdint>

#include "tests/benchmark/implementation.h"

namespace cohort::benchmark {

struct WireSizes {
  int64_t request = 0;
  int64_t reply = 0;
};

// The sizes of one member's call in the cell; in kHandoff, of the receiver's call.
WireSizes SizesOf(const Cell& cell);
WireSizes SizesOfSend(int64_t bytes);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_WIRE_SIZES_H_
