// The one memory access that all collectives come down to when every buffer is mapped by every
// rank: some sources are read once, added up in registers, and stored to some destinations.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_ACCESS_KERNEL_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_ACCESS_KERNEL_H_

#include <cstdint>
#include <vector>

namespace cohort::benchmark {

enum class Stores {
  kCached,
  kStreaming,  // past the cache, where destinations are aligned to its lines
  kMemcpy,     // as glibc copies; of one source only
};

struct Access {
  std::vector<const float*> sources;
  std::vector<float*> destinations;
  int64_t elements = 0;
};

// What is stored is visible to whoever sees a later release store of this thread.
void Perform(const Access& access, Stores stores);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_ACCESS_KERNEL_H_
