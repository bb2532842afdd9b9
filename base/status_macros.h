// The only two macros that contain a return statement.
//
//   COHORT_RETURN_IF_ERROR(DoIt());
//   COHORT_ASSIGN_OR_RETURN(auto group, Create(options));
#ifndef COHORT_BASE_STATUS_MACROS_H_
#define COHORT_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define COHORT_RETURN_IF_ERROR(expression)           \
  do {                                               \
    ::absl::Status cohort_status_ = (expression);    \
    if (!cohort_status_.ok()) return cohort_status_; \
  } while (false)

#define COHORT_MACRO_JOIN_(a, b) a##b
#define COHORT_MACRO_NAME_(a, b) COHORT_MACRO_JOIN_(a, b)

#define COHORT_ASSIGN_OR_RETURN(target, expression) \
  COHORT_ASSIGN_OR_RETURN_(COHORT_MACRO_NAME_(cohort_status_or_, __LINE__), target, expression)

#define COHORT_ASSIGN_OR_RETURN_(holder, target, expression) \
  auto holder = (expression);                                \
  if (!holder.ok()) return holder.status();                  \
  target = std::move(holder).value()

#endif  // COHORT_BASE_STATUS_MACROS_H_
