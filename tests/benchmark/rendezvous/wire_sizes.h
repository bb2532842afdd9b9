// The sizes of Cohort's own messages on the wire, so that bare gRPC sends and answers as many
// bytes.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_WIRE_SIZES_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_WIRE_SIZES_H_

#include <cstdint>

#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

struct WireSizes {
  int64_t request = 0;
  int64_t reply = 0;
};

// The sizes of one member's call of the configuration; in kHandoff, of the receiver's call.
WireSizes SizesOf(const Config& config);
WireSizes SizesOfSend(int64_t bytes);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_WIRE_SIZES_H_
