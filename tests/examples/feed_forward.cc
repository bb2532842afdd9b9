#include "tests/examples/feed_forward.h"

#include <algorithm>

namespace cohort::testing {
namespace {

Matrix Activate(Matrix up) {
  for (double& value : up.values) value = value > 0 ? value * value : 0;
  return up;
}

Matrix Apply(const MlpWeights& weights, const Matrix& input) {
  return Product(Activate(Product(input, weights.up)), weights.down);
}

// Returns the input's gradient, and adds those of the weights to `gradients`.
Matrix ApplyBackward(const MlpWeights& weights, const Matrix& input, const Matrix& gradient,
                     MlpWeights& gradients) {
  const Matrix up = Product(input, weights.up);
  gradients.down = Sum(gradients.down, Product(Transposed(Activate(up)), gradient));
  Matrix inner = Product(gradient, Transposed(weights.down));
  for (size_t i = 0; i < inner.values.size(); ++i) {
    inner.values[i] *= 2 * std::max(up.values[i], 0.0);
  }
  gradients.up = Sum(gradients.up, Product(Transposed(input), inner));
  return Product(inner, Transposed(weights.up));
}

MlpWeights NoneYet(const MlpWeights& weights) {
  return {Matrix(weights.up.rows, weights.up.columns),
          Matrix(weights.down.rows, weights.down.columns)};
}

// Adds the row `from`, multiplied by `times`, to a row of `to`.
void AddToRow(Matrix& to, int row, const Matrix& from, double times) {
  for (int j = 0; j < to.columns; ++j) to.at(row, j) += times * from.at(0, j);
}

}  // namespace

MlpWeights MlpWeights::Random(int hidden, int inner, std::mt19937& random) {
  MlpWeights weights;
  weights.up = Matrix::Random(hidden, inner, random);
  weights.down = Matrix::Random(inner, hidden, random);
  return weights;
}

MlpWeights MlpWeights::Shard(int index, int shards) const {
  const int inner = up.columns / shards;
  return {ColumnsOf(up, index * inner, inner), RowsOf(down, index * inner, inner)};
}

Matrix DenseMlp::Forward(const Matrix& input) {
  entered_ = joints_.enter(input);
  return joints_.leave(Apply(weights_, entered_));
}

Matrix DenseMlp::Backward(const Matrix& gradient) {
  gradients_ = {NoneYet(weights_)};
  return joints_.enter_backward(
      ApplyBackward(weights_, entered_, joints_.leave_backward(gradient), gradients_[0]));
}

Matrix Mixture::Forward(const Matrix& input) {
  ExpertRows came = joints_.dispatch(input);
  Matrix sums(came.rows.rows, came.rows.columns);
  for (const ExpertRows::Entry& entry : came.entries) {
    const Matrix row = RowsOf(came.rows, entry.row, 1);
    AddToRow(sums, entry.row, Apply(experts_[static_cast<size_t>(entry.expert)], row),
             entry.weight);
  }
  rows_ = std::move(came.rows);
  return joints_.combine(sums);
}

Matrix Mixture::Backward(const Matrix& gradient) {
  gradients_.clear();
  for (const MlpWeights& expert : experts_) gradients_.push_back(NoneYet(expert));
  // The gradients take the same ways as the rows, and come in the same order.
  const ExpertRows came = joints_.dispatch(gradient);
  Matrix sums(came.rows.rows, came.rows.columns);
  for (const ExpertRows::Entry& entry : came.entries) {
    const auto at = static_cast<size_t>(entry.expert);
    Matrix row = RowsOf(came.rows, entry.row, 1);
    for (double& value : row.values) value *= entry.weight;
    AddToRow(sums, entry.row,
             ApplyBackward(experts_[at], RowsOf(rows_, entry.row, 1), row, gradients_[at]), 1);
  }
  return joints_.combine(sums);
}

}  // namespace cohort::testing
