// An allocation that fails is an error of the call that asked for it, and ends nothing else.
#ifndef COHORT_BASE_NO_MEMORY_H_
#define COHORT_BASE_NO_MEMORY_H_

#include <cstdint>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {

// RESOURCE_EXHAUSTED that names the operation, such as "cohort.v1.StoreService/Put", what it needed
// memory for, and how many bytes that has.
inline absl::Status NoMemory(absl::string_view operation, absl::string_view what, int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      operation, ": the process has no memory left for ", what, " of ", bytes, " bytes"));
}

// The status that `body` returns, or NoMemory if an allocation in it fails. `body` has to leave its
// objects in order when it is left by an exception.
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

#endif  // COHORT_BASE_NO_MEMORY_H_
