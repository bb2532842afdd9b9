// The parts of a tensor along a dimension, one for each rank. In flat memory they lie one after the
// other, each contiguous.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_PARTS_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_PARTS_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/tensor/tensor.h"

namespace cohort::worker {

// Whether the tensor's own memory has its parts one after the other. That is so if it is
// contiguous, and if every dimension before `dim` has extent 1 or there are no elements.
bool HasFlatParts(const Tensor& tensor, int dim);

// Whether a stride of 0 lets several elements share memory.
bool HasRepeats(const Tensor& tensor);

// Returns a view whose elements in order are those of `parts` equal parts, one after the other. It
// is the tensor itself if that has flat parts, else a view in `room`. The extent is a multiple of
// `parts`.
const Tensor& EqualParts(const Tensor& tensor, int dim, int parts, std::optional<Tensor>& room);

// The sizes of the parts sum to the extent. In flat memory, part r begins at element r * pitch, or,
// if `pitch` is 0, at the end of part r - 1. copy(from, to) copies each part; the first error ends
// the call.
using CopyPart = absl::FunctionRef<absl::Status(const Tensor& from, const Tensor& to)>;
absl::Status PackParts(const Tensor& tensor, int dim, absl::Span<const int64_t> sizes,
                       int64_t pitch, char* flat, CopyPart copy);
absl::Status UnpackParts(const char* flat, int64_t pitch, const Tensor& tensor, int dim,
                         absl::Span<const int64_t> sizes, CopyPart copy);

// The number of elements at one index of `dim`.
int64_t RowCount(absl::Span<const int64_t> shape, int dim);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_PARTS_H_
