// The size of a processor's last-level cache.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_LAST_LEVEL_CACHE_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_LAST_LEVEL_CACHE_H_

#include <cstdint>
#include <string>

namespace cohort::worker {

// Returns the size in bytes of the largest cache of processor 0. It counts the cache that the
// processor shares with its neighbours; on some machines the C library counts the caches of all
// processors. 16 MiB if the system does not report it.
int64_t LastLevelCacheBytes(const std::string& caches = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_LAST_LEVEL_CACHE_H_
