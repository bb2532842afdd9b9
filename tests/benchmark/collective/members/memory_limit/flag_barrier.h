// The cheapest barrier of processes that share memory: one cache line for each, which only its
// owner writes.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_MEMORY_LIMIT_FLAG_BARRIER_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_MEMORY_LIMIT_FLAG_BARRIER_H_

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cohort::benchmark {

class FlagBarrier {
 public:
  static constexpr size_t BytesFor(int members) { return members * sizeof(Line); }

  // `memory` holds zeros at first. `yields`: ranks yield the processor, because there are more
  // ranks than cores.
  FlagBarrier(void* memory, int rank, int members, bool yields)
      : lines_(static_cast<Line*>(memory)), rank_(rank), members_(members), yields_(yields) {}

  void Wait() {
    const uint64_t round = ++round_;
    lines_[rank_].round.store(round, std::memory_order_release);
    for (int i = 1; i < members_; ++i) {
      const std::atomic<uint64_t>& other = lines_[(rank_ + i) % members_].round;
      while (other.load(std::memory_order_acquire) < round) {
        if (yields_) sched_yield();
      }
    }
  }

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> round;
  };

  Line* const lines_;
  const int rank_;
  const int members_;
  const bool yields_;
  uint64_t round_ = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_MEMORY_LIMIT_FLAG_BARRIER_H_
