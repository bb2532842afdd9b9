// gRPC reflection, as a choice. The library switches it on for every server of a process that
// merely links it, so it is loaded when asked for.
#ifndef COHORT_BASE_RPC_REFLECTION_H_
#define COHORT_BASE_RPC_REFLECTION_H_

#include "absl/status/status.h"

namespace cohort {

// Servers built afterwards, in the whole process, serve reflection. Errors: FAILED_PRECONDITION
// (the library is not installed, or the program has gRPC inside).
absl::Status EnableReflection();

}  // namespace cohort

#endif  // COHORT_BASE_RPC_REFLECTION_H_
