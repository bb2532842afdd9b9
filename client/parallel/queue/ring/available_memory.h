// Checks for available memory before a process uses it. A process that uses more than available
// gets no error: the system kills it.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_AVAILABLE_MEMORY_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cohort::parallel {

// Compares `bytes` with the machine's available memory and the room that this process's control
// groups leave (version 1 and 2, with their parents). `root` is "/" except in tests. OK, too, if
// none of it can be read. Errors: RESOURCE_EXHAUSTED (the needed and the available bytes, and the
// limit that says so).
absl::Status CheckAvailableMemory(uint64_t bytes, const std::string& root = "/");

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_AVAILABLE_MEMORY_H_
