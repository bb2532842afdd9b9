// The steps of a copy from one layout to another, for code that runs them.
#ifndef COHORT_BASE_TENSOR_COPY_PLAN_H_
#define COHORT_BASE_TENSOR_COPY_PLAN_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/tensor/tensor.h"

namespace cohort {

// The distance from one step to the next in each layout, in bytes.
struct CopyAxis {
  int64_t extent;
  int64_t from;
  int64_t to;
};
using CopyAxes = absl::InlinedVector<CopyAxis, 6>;

// The copy moves a run of `run` bytes for each combination of steps along the axes. There are as
// few axes as the two layouts need; the axis with the smallest steps in `to` is the last. Steps in
// `to` are not negative.
struct CopyPlan {
  const char* from = nullptr;
  char* to = nullptr;
  int64_t run = 0;
  CopyAxes axes;
};

// Preconditions: CheckCopy returns OK, and the tensors have at least one element.
CopyPlan PlanCopy(const Tensor& from, const Tensor& to);

// Errors: INVALID_ARGUMENT (another type or shape).
absl::Status CheckCopy(const Tensor& from, const Tensor& to);

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_COPY_PLAN_H_
