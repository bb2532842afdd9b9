// Bits that cannot be guessed, from the kernel.
#ifndef COHORT_BASE_RPC_RANDOM_BITS_H_
#define COHORT_BASE_RPC_RANDOM_BITS_H_

#include "base/id128.h"

namespace cohort {

// Never empty. Thread-safe.
Id128 RandomBits();

}  // namespace cohort

#endif  // COHORT_BASE_RPC_RANDOM_BITS_H_
