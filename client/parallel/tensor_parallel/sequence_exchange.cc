#include "client/parallel/tensor_parallel/sequence_exchange.h"

#include <cstdint>
#include <numeric>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/keep_alive.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/collectives/results/allocate_result.h"
#include "client/parallel/collectives/results/result_shapes.h"
#include "client/parallel/tensor_parallel/views.h"

namespace cohort::parallel {
namespace {

absl::Status Wrong(const Tensor& input, absl::string_view collective, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(collective, " of ", input.ToString(), ": ", why));
}

// A view with dimension `dim` first and the others in order.
Tensor InFront(const Tensor& tensor, int dim) {
  absl::InlinedVector<int, 6> order(static_cast<size_t>(tensor.dims()));
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + dim);
  order.insert(order.begin(), dim);
  return tensor.Permute(order);
}

// The number of rows and of columns.
struct Matrix {
  int64_t rows = 1;
  int64_t columns = 0;
};
Matrix AsMatrix(const Shape& shape) {
  Matrix matrix;
  for (size_t i = 0; i + 1 < shape.size(); ++i) matrix.rows *= shape[i];
  matrix.columns = shape.back();
  return matrix;
}

absl::StatusOr<TensorSpec> HiddenOf(const Tensor& input, int ranks) {
  constexpr absl::string_view kCollective = "sequence_to_hidden";
  if (input.dims() == 0) return Wrong(input, kCollective, "it has no dimension");
  COHORT_RETURN_IF_ERROR(CheckCountable(input.type(), input.shape()));
  Matrix matrix = AsMatrix(input.shape());
  if (matrix.columns % ranks != 0) {
    return Wrong(input, kCollective,
                 absl::StrCat("its ", matrix.columns, " columns are not a multiple of the ", ranks,
                              " ranks"));
  }
  int64_t rows = 0;
  if (__builtin_mul_overflow(matrix.rows, ranks, &rows)) {
    return Wrong(input, kCollective, "the result has more rows than can be counted");
  }
  return TensorSpec{input.type(), {rows, matrix.columns / ranks}, input.device()};
}

absl::StatusOr<TensorSpec> SequenceOf(const Tensor& input, int ranks) {
  constexpr absl::string_view kCollective = "hidden_to_sequence";
  if (input.dims() == 0) return Wrong(input, kCollective, "it has no dimension");
  COHORT_RETURN_IF_ERROR(CheckCountable(input.type(), input.shape()));
  Matrix matrix = AsMatrix(input.shape());
  if (matrix.rows % ranks != 0) {
    return Wrong(
        input, kCollective,
        absl::StrCat("its ", matrix.rows, " rows are not a multiple of the ", ranks, " ranks"));
  }
  int64_t columns = 0;
  if (__builtin_mul_overflow(matrix.columns, ranks, &columns)) {
    return Wrong(input, kCollective, "the result has more columns than can be counted");
  }
  return TensorSpec{input.type(), {matrix.rows / ranks, columns}, input.device()};
}

// Copies the elements to `copy`, contiguous.
absl::Status CopyOf(client::Group& group, const Tensor& input, const client::CallOptions& call,
                    Tensor& copy) {
  COHORT_ASSIGN_OR_RETURN(copy, Allocate(group, input.type(), input.shape(), input.device()));
  return group.Copy(input, copy, call);
}

}  // namespace

absl::StatusOr<Tensor> SequenceToHidden(client::Group& group, const Tensor& input,
                                        const SequenceExchangeOptions& options) {
  const int ranks = group.size();
  COHORT_ASSIGN_OR_RETURN(const Tensor result, AllocateResult(group, HiddenOf(input, ranks),
                                                              options.buffers, options.call));
  // [..., T, H/T] with the ranks in front: part r is the block of columns of rank r.
  const int last = input.dims() - 1;
  const Tensor blocks = InFront(WithDimSplit(input, last, ranks, result.shape()[1]), last);
  COHORT_ASSIGN_OR_RETURN(const Tensor output, result.Reshape(blocks.shape()));
  COHORT_RETURN_IF_ERROR(group.AllToAll(blocks, output, options.call));
  return result;
}

absl::StatusOr<Tensor> HiddenToSequence(client::Group& group, const Tensor& input,
                                        const SequenceExchangeOptions& options) {
  const int ranks = group.size();
  COHORT_ASSIGN_OR_RETURN(const Tensor result, AllocateResult(group, SequenceOf(input, ranks),
                                                              options.buffers, options.call));
  // The reverse: part r is the block of columns from rank r.
  const int64_t columns = input.shape().back();
  const Tensor output = InFront(WithDimSplit(result, 1, ranks, columns), 1);
  std::optional<Tensor> rows = WithRowsMerged(input);
  Tensor copy;
  if (!rows.has_value()) {
    const absl::Status status = CopyOf(group, input, options.call, copy);
    if (!status.ok()) {
      return group.FailCollectiveAs(AwaitLastUse(group, copy, status, options.call), options.call);
    }
    rows = WithRowsMerged(copy);
  }
  const Tensor blocks = WithDimSplit(*rows, 0, ranks, output.shape()[1]);
  const absl::Status exchanged = group.AllToAll(blocks, output, options.call);
  // The copy lives until it has been read, or will not be read.
  COHORT_RETURN_IF_ERROR(AwaitLastUse(group, copy, exchanged, options.call));
  return result;
}

}  // namespace cohort::parallel
