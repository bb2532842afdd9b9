// How much memory this process may use, as far as the machine says so.
#ifndef COHORT_BASE_MEMORY_LIMIT_H_
#define COHORT_BASE_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace cohort {

// The smallest of: the physical memory; the limits of the process's cgroup and of all its parents
// (version 2 `memory.max`, version 1 `memory.limit_in_bytes`); RLIMIT_AS and RLIMIT_DATA. A source
// that is missing, unreadable or unlimited counts as no limit. Reads files; never 0.
int64_t MemoryLimitBytes();

// The limits of cgroups alone, with the files below `root` in place of those below "/". Returns
// INT64_MAX where there is none.
int64_t CgroupMemoryLimitBytes(const std::string& root);

}  // namespace cohort

#endif  // COHORT_BASE_MEMORY_LIMIT_H_
