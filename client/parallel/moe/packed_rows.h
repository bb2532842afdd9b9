// Rows of several tensors as one piece of bytes: tensor by tensor, each without gaps.
#ifndef COHORT_CLIENT_PARALLEL_MOE_PACKED_ROWS_H_
#define COHORT_CLIENT_PARALLEL_MOE_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/tensor.h"

namespace cohort::parallel {

// Of one row, of all tensors; also of tensors without any.
int64_t RowBytes(const Tensor& tensor);
int64_t RowBytes(const std::vector<Tensor>& tensors);

// On the host. `rows` rows from `begin` on, of each tensor, to or from so many times RowBytes.
// Errors: INVALID_ARGUMENT (rows that a tensor has not).
absl::Status PackRows(absl::Span<const Tensor* const> tensors, int64_t begin, int64_t rows,
                      char* to);
absl::Status UnpackRows(const char* from, int64_t begin, int64_t rows,
                        absl::Span<const Tensor> tensors);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_PACKED_ROWS_H_
