#include "base/tensor/copy_plan.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace cohort {

absl::Status CheckCopy(const Tensor& from, const Tensor& to) {
  if (from.type() == to.type() && from.shape() == to.shape()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(from.ToString(), " cannot be copied to ", to.ToString()));
}

CopyPlan PlanCopy(const Tensor& from, const Tensor& to) {
  const int64_t element = SizeOf(from.type());
  CopyPlan plan;
  plan.from = static_cast<const char*>(from.data());
  plan.to = static_cast<char*>(to.data());
  plan.run = element;
  CopyAxes axes;
  for (size_t i = 0; i < from.shape().size(); ++i) {
    const int64_t extent = from.shape()[i];
    if (extent == 1) continue;
    CopyAxis axis = {extent, from.strides()[i] * element, to.strides()[i] * element};
    if (axis.to < 0) {
      plan.from += (extent - 1) * axis.from;
      plan.to += (extent - 1) * axis.to;
      axis.from = -axis.from;
      axis.to = -axis.to;
    }
    axes.push_back(axis);
  }
  std::sort(axes.begin(), axes.end(), [](const CopyAxis& a, const CopyAxis& b) {
    return a.to != b.to ? a.to > b.to : std::abs(a.from) > std::abs(b.from);
  });
  for (const CopyAxis& axis : axes) {
    if (!plan.axes.empty() && plan.axes.back().to == axis.extent * axis.to &&
        plan.axes.back().from == axis.extent * axis.from) {
      plan.axes.back() = {plan.axes.back().extent * axis.extent, axis.from, axis.to};
    } else {
      plan.axes.push_back(axis);
    }
  }
  if (!plan.axes.empty() && plan.axes.back().from == element && plan.axes.back().to == element) {
    plan.run *= plan.axes.back().extent;
    plan.axes.pop_back();
  }
  return plan;
}

}  // namespace cohort
