// Bits that cannot be guessed, from the kernel.
#ifndef COHORT_COORDINATOR_SERVICE_RANDOM_BITS_H_
#define COHORT_COORDINATOR_SERVICE_RANDOM_BITS_H_

#include "base/id128.h"

namespace cohort::coordinator {

// Never empty. Thread-safe.
Id128 RandomBits();

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_RANDOM_BITS_H_
