// Turns an allocation that fails into an error of the call that needed it.
#ifndef COHORT_BASE_MEMORY_NO_MEMORY_H_
#define COHORT_BASE_MEMORY_NO_MEMORY_H_

#include <cstdint>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Returns RESOURCE_EXHAUSTED. `operation` is a name such as "cohort.v1.StoreService/Put", `what`
// the object that needs memory, and `bytes` its size.
inline absl::Status NoMemory(absl::string_view operation, absl::string_view what, int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      operation, ": the process has no memory left for ", what, " of ", bytes, " bytes"));
}

// Returns the status of `body`, or NoMemory if an allocation in it fails. `body` leaves its objects
// consistent when an exception ends it.
template <typename Body>
absl::Status WithMemory(absl::string_view operation, absl::string_view what, int64_t bytes,
                        Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return NoMemory(operation, what, bytes);
  }
}

}  // namespace cohort

#endif  // COHORT_BASE_MEMORY_NO_MEMORY_H_
