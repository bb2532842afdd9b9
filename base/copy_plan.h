// The steps of a copy from one layout to another, for whoever makes them.
#ifndef COHORT_BASE_COPY_PLAN_H_
#define COHORT_BASE_COPY_PLAN_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/tensor.h"

namespace cohort {

// From one step to the next: bytes in each layout.
struct CopyAxis {
  int64_t extent;
  int64_t from;
  int64_t to;
};
using CopyAxes = absl::InlinedVector<CopyAxis, 6>;

// Runs of `run` bytes, one for each combination of steps along the axes, of which there are as few
// as the two layouts need, the one of the smallest steps in `to` last. In `to` no step is negative.
struct CopyPlan {
  const char* from = nullptr;
  char* to = nullptr;
  int64_t run = 0;
  CopyAxes axes;
};

// Of at least one element. Not checked: CheckCopy.
CopyPlan PlanCopy(const Tensor& from, const Tensor& to);

// INVALID_ARGUMENT: another type or shape.
absl::Status CheckCopy(const Tensor& from, const Tensor& to);

}  // namespace cohort

#endif  // COHORT_BASE_COPY_PLAN_H_
