#include "worker/group/collectives/tensor_call.h"

#include "absl/strings/str_cat.h"
#include "worker/communicator/argument_error.h"

namespace cohort::worker {

absl::StatusOr<CollectiveCall> WithResolvedDim(const CollectiveCall& call) {
  CollectiveCall resolved = call;
  const absl::StatusOr<int> dim = ResolveDim(Shape(call.shape.begin(), call.shape.end()), call.dim);
  if (!dim.ok()) {
    // The error describes the checked part of the call alone.
    resolved.dim = -1;
    resolved.sizes = {};
    return InvalidCall(resolved, dim.status().message());
  }
  resolved.dim = *dim;
  return resolved;
}

absl::Status CheckFirstDim(const CollectiveCall& call) {
  if (call.dim == 0) return absl::OkStatus();
  return InvalidCall(call, "it divides dimension 0 alone");
}

absl::Status InvalidCall(const CollectiveCall& call, absl::string_view why) {
  return ArgumentError(absl::StrCat(Describe(call), ": ", why));
}

}  // namespace cohort::worker
