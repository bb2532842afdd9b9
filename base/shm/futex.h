// Sleeping on a word that other processes change.
#ifndef COHORT_BASE_SHM_FUTEX_H_
#define COHORT_BASE_SHM_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace cohort::shm {

// Returns at once when `word` is not `expected`; otherwise at a wake, at `deadline` (steady time;
// it may be InfiniteFuture), or without cause. `word` may lie in shared memory.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline);

void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_FUTEX_H_
