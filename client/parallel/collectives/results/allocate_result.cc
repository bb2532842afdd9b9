#include "client/parallel/collectives/results/allocate_result.h"

#include "client/parallel/collectives/results/allocate.h"

namespace cohort::parallel {

absl::StatusOr<Tensor> AllocateResult(client::Group& group, const absl::StatusOr<TensorSpec>& spec,
                                      const Buffers* buffers, const client::CallOptions& options) {
  if (!spec.ok()) return group.FailCollectiveAs(spec.status(), options);
  absl::StatusOr<Tensor> result = buffers != nullptr
                                      ? buffers->Take(*spec)
                                      : Allocate(group, spec->type, spec->shape, spec->device);
  if (!result.ok()) return group.FailCollectiveAs(result.status(), options);
  return result;
}

}  // namespace cohort::parallel
