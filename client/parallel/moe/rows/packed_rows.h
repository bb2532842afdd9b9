// Rows of several tensors as one piece of bytes: tensor by tensor, each without gaps.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROWS_PACKED_ROWS_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROWS_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/tensor/tensor.h"

namespace cohort::parallel {

// The bytes of one row of a tensor, or of all tensors; also for tensors without rows.
int64_t RowBytes(const Tensor& tensor);
int64_t RowBytes(const std::vector<Tensor>& tensors);

// The rows of all ranks.
int64_t SumOf(const std::vector<int64_t>& rows);

// Copies `rows` rows of each tensor, from row `begin` on, to or from rows * RowBytes bytes. The
// tensors are on the host. Errors: INVALID_ARGUMENT (a tensor does not have these rows).
absl::Status PackRows(absl::Span<const Tensor* const> tensors, int64_t begin, int64_t rows,
                      char* to);
absl::Status UnpackRows(const char* from, int64_t begin, int64_t rows,
                        absl::Span<const Tensor> tensors);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROWS_PACKED_ROWS_H_
