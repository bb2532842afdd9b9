// Slices of tensors that all members of a tensor group have alike. Each member sends one slice, and
// its receiver gathers the slices from the other receivers.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_TENSOR_SLICES_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_TENSOR_SLICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

// Whether one tensor of a message was cut. The sender decides and tells the receiver.
struct Cut {
  int parts = 1;  // 1: it travels whole
  Shape shape;    // of the whole tensor, if it was cut
};

// Which tensors of one message were cut.
struct Slices {
  // Counts, from 1 on, the messages of this sender to this receiver on this channel in which
  // tensors may be cut. 0: the sender has no tensor group. Slices with the same number are of the
  // same micro-batch.
  uint32_t number = 0;
  std::vector<Cut> cuts;  // by tensor; empty: all are whole
};
inline constexpr uint32_t kMostNumber = 0x7fffffff;  // the number after it is 1

// Slices as the note of a message.
std::string EncodeSlices(const Slices& slices);
// Decodes the note of a message that announces `metas`. Errors: INVALID_ARGUMENT (not such a note,
// or the announced slices do not fit the shapes).
absl::StatusOr<Slices> DecodeSlices(absl::string_view note, const std::vector<TensorMeta>& metas);

// Slice `index` of `parts` equal slices of the elements, in their order, with one dimension. It is
// a view if the elements are contiguous, else a copy in memory of `group`, made with `options`.
// Errors: INVALID_ARGUMENT (the elements do not divide); those of Group::Copy.
absl::StatusOr<Tensor> SliceOf(client::Group& group, const Tensor& tensor, int parts, int index,
                               const client::CallOptions& options);

// All members of `tensor_group` call it with their slices of one tensor; `whole` is contiguous.
absl::Status GatherSlices(client::Group& tensor_group, const Tensor& slice, const Tensor& whole,
                          const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_TENSOR_SLICES_H_
