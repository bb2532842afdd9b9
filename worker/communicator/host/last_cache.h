// How much the last cache of a processor holds.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_LAST_CACHE_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_LAST_CACHE_H_

#include <cstdint>
#include <string>

namespace cohort::worker {

// In bytes, of the largest cache of one processor: that which it shares with its neighbours, not
// with all of the machine, as the C library counts them on some. 16 MiB where the system does not
// say.
int64_t LastCacheBytes(const std::string& caches = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_LAST_CACHE_H_
