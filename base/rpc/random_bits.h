// Bits that cannot be guessed, from the kernel.
#ifndef COHORT_BASE_RPC_RANDOM_BITS_H_
#define COHORT_BASE_RPC_RANDOM_BITS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/id128.h"

namespace cohort {

// Never empty. Thread-safe.
Id128 RandomBits();

// Positive numbers that cannot be guessed. Asks the kernel for several at once. Confined to one
// thread at a time; a forked child must not use its copy.
class RandomNumbers {
 public:
  int64_t Next();

 private:
  std::array<uint64_t, 32> words_;
  size_t left_ = 0;
};

}  // namespace cohort

#endif  // COHORT_BASE_RPC_RANDOM_BITS_H_
