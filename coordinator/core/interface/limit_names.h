// The fields of Limits by name, for flags, for the Limits method and for error messages.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_LIMIT_NAMES_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_LIMIT_NAMES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/interface/limits.h"

namespace cohort::coordinator {

struct LimitName {
  const char* name;
  int64_t Limits::*field;
  int64_t largest = int64_t{1} << 50;
};
// Returns the things that a limit counts, for help texts. Empty: there is no such limit.
absl::string_view CountedBy(absl::string_view name);

// In the order of the struct; lives for ever.
const std::vector<LimitName>& LimitNames();

// Errors: INVALID_ARGUMENT (no such limit; not from 1 to its `largest`).
absl::Status SetLimit(absl::string_view name, int64_t value, Limits* limits);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_LIMIT_NAMES_H_
