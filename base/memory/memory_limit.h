// The memory that this process may use, by the limits of the machine.
#ifndef COHORT_BASE_MEMORY_MEMORY_LIMIT_H_
#define COHORT_BASE_MEMORY_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace cohort {

// Returns the smallest of these: the physical memory; the limits of the process's cgroup and of all
// its parents (version 2 `memory.max`, version 1 `memory.limit_in_bytes`); RLIMIT_AS; RLIMIT_DATA.
// A source that is missing, unreadable or unlimited is left out. The result is never 0. Reads
// files.
int64_t MemoryLimitBytes();

// Returns the smallest limit of the cgroups alone, read from the files below `root` in place of
// those below "/". INT64_MAX means that no cgroup has a limit.
int64_t CgroupMemoryLimitBytes(const std::string& root);

}  // namespace cohort

#endif  // COHORT_BASE_MEMORY_MEMORY_LIMIT_H_
