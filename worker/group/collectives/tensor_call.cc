#include "worker/group/collectives/tensor_call.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/communicator/argument_error.h"

namespace cohort::worker {

CollectiveCall Unchecked(const CollectiveCall& asked) {
  CollectiveCall call = asked;
  call.root = -1;
  call.dim = -1;
  call.sizes = {};
  call.output_sizes = {};
  return call;
}

absl::Status SetDim(CollectiveCall& call, int dim) {
  if (dim >= 0 && dim < static_cast<int>(call.shape.size())) {
    call.dim = dim;
    return absl::OkStatus();
  }
  const absl::StatusOr<int> resolved = ResolveDim(Shape(call.shape.begin(), call.shape.end()), dim);
  if (!resolved.ok()) return InvalidCall(call, resolved.status().message());
  call.dim = *resolved;
  return absl::OkStatus();
}

absl::Status InvalidCall(const CollectiveCall& call, absl::string_view why) {
  return ArgumentError(absl::StrCat(Describe(call), ": ", why));
}

}  // namespace cohort::worker
