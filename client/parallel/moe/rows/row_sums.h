// Sums of rows of floating-point numbers, on the host.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_SUMS_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/tensor/tensor.h"

namespace cohort::parallel {

// Which rows of one tensor are added up to which rows of another.
struct RowTerms {
  std::vector<int64_t> begins;  // of each sum, where its terms begin; at last, how many there are
  std::vector<int64_t> rows;    // by sum, and there in the order in which they are added
  std::vector<float> weights;   // of each term; none: 1
};

// Row i is a term of the sum sums[i], which is in 0..count-1; its weight is weights[i].
RowTerms TermsOf(const std::vector<int64_t>& sums, int64_t count,
                 const std::vector<float>& weights = {});

// Each row of `to` is the weighted sum of rows of `from`, or zeros if it has no terms. It adds in
// f32 (f64 for f64) in the order of the terms and rounds once, so the result always has the same
// bits. Both are contiguous, of one floating type, and have rows of the same shape.
void SumRows(const Tensor& from, const RowTerms& terms, const Tensor& to);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_SUMS_H_
