// Whether there is room for memory that is about to be used: a process that takes more than there
// is gets no error, it is ended.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_MEMORY_ROOM_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_MEMORY_ROOM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cohort::parallel {

// What the machine says is available, and what the limits of this process's control groups (version
// 1 and 2, and of those they lie in) leave. `root` is "/" but in tests. OK, too, where nothing of
// it can be read. Errors: RESOURCE_EXHAUSTED: what was needed, what there is, and who says so.
absl::Status CheckMemoryRoom(uint64_t bytes, const std::string& root = "/");

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_MEMORY_ROOM_H_
