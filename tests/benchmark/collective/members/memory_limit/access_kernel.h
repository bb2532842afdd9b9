// The memory access of every collective when each rank maps all buffers. It reads some sources
// once, adds them up in registers and stores the sum to some destinations.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_MEMORY_LIMIT_ACCESS_KERNEL_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_MEMORY_LIMIT_ACCESS_KERNEL_H_

#include <cstdint>
#include <vector>

namespace cohort::benchmark {

enum class Stores {
  kCached,
  kStreaming,  // past the cache, where destinations are aligned to its lines
  kMemcpy,     // as glibc copies; only with one source
};

struct Access {
  std::vector<const float*> sources;
  std::vector<float*> destinations;
  int64_t elements = 0;
};

// A thread that sees a later release store of this thread also sees the stored elements.
void Perform(const Access& access, Stores stores);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_MEMORY_LIMIT_ACCESS_KERNEL_H_
