#include "client/parallel/collectives/fail_collective.h"

#include "client/parallel/collectives/allocate.h"

namespace cohort::parallel {

absl::Status FailCollective(client::Group& group, const absl::Status& why,
                            const client::CallOptions& options) {
  // Like the group's own collectives: on streams the other ranks do not wait here.
  if (options.stream.has_value()) return why;
  const absl::Status told = group.FailCollective(why, options);
  return absl::IsInvalidArgument(told) && !absl::IsInvalidArgument(why) ? why : told;
}

absl::StatusOr<Tensor> AllocateResult(client::Group& group, const absl::StatusOr<TensorSpec>& spec,
                                      const Buffers* buffers, const client::CallOptions& options) {
  if (!spec.ok()) return FailCollective(group, spec.status(), options);
  absl::StatusOr<Tensor> result = buffers != nullptr
                                      ? buffers->Take(*spec)
                                      : Allocate(group, spec->type, spec->shape, spec->device);
  if (!result.ok()) return FailCollective(group, result.status(), options);
  return result;
}

}  // namespace cohort::parallel
