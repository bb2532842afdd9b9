// Tensors that all members of a tensor group have alike need not travel whole from each: each sends
// a slice, and its receiver gathers the slices from the receivers beside it.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_SCATTER_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_SCATTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

// What became of one tensor of a message; its sender decides, and says it.
struct Cut {
  int parts = 1;  // 1: it travels whole
  Shape shape;    // of the whole, where it was cut
};

// Of one message: what became of its tensors.
struct Slices {
  // The how many-th of this sender to this receiver in which tensors may be cut, on its channel,
  // from 1 on; 0: of a sender without a tensor group. Slices of the same number are of the same
  // micro-batch.
  uint32_t number = 0;
  std::vector<Cut> cuts;  // by tensor; empty: all are whole
};
inline constexpr uint32_t kMostNumber = 0x7fffffff;  // behind it comes 1

// As the note of a message.
std::string EncodeSlices(const Slices& slices);
// Of a message that announces `metas`. Errors: INVALID_ARGUMENT: it is no such note, or the slices
// that come are not those of the shapes.
absl::StatusOr<Slices> DecodeSlices(absl::string_view note, const std::vector<TensorMeta>& metas);

// Slice `index` of `parts` equal ones of the elements, in their order, of one dimension; a view,
// or, where the elements do not lie so, of a copy in memory of `group`, made as `options` say.
// Errors: INVALID_ARGUMENT (they do not divide); those of Group::Copy.
absl::StatusOr<Tensor> SliceOf(client::Group& group, const Tensor& tensor, int parts, int index,
                               const client::CallOptions& options);

// Called by all members of `tensor_group` with their slices of one tensor; `whole` is contiguous.
absl::Status GatherSlices(client::Group& tensor_group, const Tensor& slice, const Tensor& whole,
                          const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_SCATTER_H_
