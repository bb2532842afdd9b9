// The parts of a tensor along a dimension, one for each rank, and the same one behind the other in
// flat memory, each contiguous.
#ifndef COHORT_WORKER_GROUP_PARTS_H_
#define COHORT_WORKER_GROUP_PARTS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/tensor.h"

namespace cohort::worker {

// Whether the tensor's own memory is flat in this sense: it is contiguous, and nothing lies outside
// of `dim`.
bool HasFlatParts(const Tensor& tensor, int dim);

// A view of `parts` equal ones, such that its elements in order are theirs one behind the other:
// the tensor itself where it has flat parts, else another in `*room`. The extent is a multiple.
const Tensor& EqualParts(const Tensor& tensor, int dim, int parts, Tensor* room);

// Parts of any sizes, whose sum is the extent. In flat memory, part r begins at element
// r * pitch of it, or, if `pitch` is 0, where part r - 1 ends. Each is copied by copy(from, to),
// until one fails.
using CopyPart = absl::FunctionRef<absl::Status(const Tensor& from, const Tensor& to)>;
absl::Status PackParts(const Tensor& tensor, int dim, absl::Span<const int64_t> sizes,
                       int64_t pitch, char* flat, CopyPart copy);
absl::Status UnpackParts(const char* flat, int64_t pitch, const Tensor& tensor, int dim,
                         absl::Span<const int64_t> sizes, CopyPart copy);

// How many elements belong to one index of `dim`.
int64_t RowCount(absl::Span<const int64_t> shape, int dim);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_PARTS_H_
