#include "tests/examples/decoder_layer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cohort::testing {
namespace {

void SetColumns(Matrix& to, int begin, const Matrix& from) {
  for (int i = 0; i < from.rows; ++i) {
    for (int j = 0; j < from.columns; ++j) to.at(i, begin + j) = from.at(i, j);
  }
}

// Returns the factor that normalises the row: 1 over the root of its mean square.
double ScaleOf(const Matrix& matrix, int row) {
  double squares = 0;
  for (int j = 0; j < matrix.columns; ++j) squares += matrix.at(row, j) * matrix.at(row, j);
  return 1 / std::sqrt(squares / matrix.columns + 1e-6);
}
Matrix Norm(const Matrix& input) {
  Matrix result = input;
  for (int i = 0; i < input.rows; ++i) {
    const double scale = ScaleOf(input, i);
    for (int j = 0; j < input.columns; ++j) result.at(i, j) *= scale;
  }
  return result;
}
Matrix NormBackward(const Matrix& input, const Matrix& gradient) {
  Matrix result = gradient;
  for (int i = 0; i < input.rows; ++i) {
    const double scale = ScaleOf(input, i);
    double dot = 0;
    for (int j = 0; j < input.columns; ++j) dot += gradient.at(i, j) * input.at(i, j);
    const double pull = dot * scale * scale * scale / input.columns;
    for (int j = 0; j < input.columns; ++j) {
      result.at(i, j) = gradient.at(i, j) * scale - input.at(i, j) * pull;
    }
  }
  return result;
}

// The softmax of each row; row i covers columns 0..i.
Matrix CausalSoftmax(const Matrix& scores) {
  Matrix result(scores.rows, scores.columns);
  for (int i = 0; i < scores.rows; ++i) {
    double most = -std::numeric_limits<double>::infinity();
    for (int j = 0; j <= i; ++j) most = std::max(most, scores.at(i, j));
    double sum = 0;
    for (int j = 0; j <= i; ++j) sum += result.at(i, j) = std::exp(scores.at(i, j) - most);
    for (int j = 0; j <= i; ++j) result.at(i, j) /= sum;
  }
  return result;
}
Matrix SoftmaxBackward(const Matrix& result, const Matrix& gradient) {
  Matrix scores(result.rows, result.columns);
  for (int i = 0; i < result.rows; ++i) {
    double dot = 0;
    for (int j = 0; j <= i; ++j) dot += result.at(i, j) * gradient.at(i, j);
    for (int j = 0; j <= i; ++j) {
      scores.at(i, j) = result.at(i, j) * (gradient.at(i, j) - dot);
    }
  }
  return scores;
}

}  // namespace

AttentionWeights AttentionWeights::Random(int hidden, std::mt19937& random) {
  AttentionWeights weights;
  for (Matrix* const matrix : {&weights.query, &weights.key, &weights.value, &weights.out}) {
    *matrix = Matrix::Random(hidden, hidden, random);
  }
  return weights;
}

AttentionWeights AttentionWeights::Shard(int index, int shards) const {
  const int size = query.columns / shards;
  const int begin = index * size;
  return {ColumnsOf(query, begin, size), ColumnsOf(key, begin, size), ColumnsOf(value, begin, size),
          RowsOf(out, begin, size)};
}

Matrix DecoderLayer::Attend() {
  query_ = Product(entered_, weights_.query);
  key_ = Product(entered_, weights_.key);
  value_ = Product(entered_, weights_.value);
  attention_.clear();
  Matrix heads(query_.rows, query_.columns);
  for (int begin = 0; begin < query_.columns; begin += head_) {
    Matrix scores =
        Product(ColumnsOf(query_, begin, head_), Transposed(ColumnsOf(key_, begin, head_)));
    for (double& score : scores.values) score /= std::sqrt(head_);
    attention_.push_back(CausalSoftmax(scores));
    SetColumns(heads, begin, Product(attention_.back(), ColumnsOf(value_, begin, head_)));
  }
  return heads;
}

Matrix DecoderLayer::AttendBackward(const Matrix& gradient) {
  Matrix query(query_.rows, query_.columns);
  Matrix key = query;
  Matrix value = query;
  for (int begin = 0; begin < query_.columns; begin += head_) {
    const Matrix& attention = attention_[static_cast<size_t>(begin / head_)];
    const Matrix head = ColumnsOf(gradient, begin, head_);
    SetColumns(value, begin, Product(Transposed(attention), head));
    Matrix scores =
        SoftmaxBackward(attention, Product(head, Transposed(ColumnsOf(value_, begin, head_))));
    for (double& score : scores.values) score /= std::sqrt(head_);
    SetColumns(query, begin, Product(scores, ColumnsOf(key_, begin, head_)));
    SetColumns(key, begin, Product(Transposed(scores), ColumnsOf(query_, begin, head_)));
  }
  gradients_.query = Product(Transposed(entered_), query);
  gradients_.key = Product(Transposed(entered_), key);
  gradients_.value = Product(Transposed(entered_), value);
  return Sum(
      Sum(Product(query, Transposed(weights_.query)), Product(key, Transposed(weights_.key))),
      Product(value, Transposed(weights_.value)));
}

Matrix DecoderLayer::Forward(const Matrix& input) {
  input_ = input;
  entered_ = joints_.enter(Norm(input_));
  heads_ = Attend();
  middle_ = Sum(input_, joints_.leave(Product(heads_, weights_.out)));
  return Sum(middle_, feed_forward_->Forward(Norm(middle_)));
}

Matrix DecoderLayer::Backward(const Matrix& gradient) {
  const Matrix middle = Sum(gradient, NormBackward(middle_, feed_forward_->Backward(gradient)));
  const Matrix out = joints_.leave_backward(middle);
  gradients_.out = Product(Transposed(heads_), out);
  const Matrix attended = AttendBackward(Product(out, Transposed(weights_.out)));
  return Sum(middle, NormBackward(input_, joints_.enter_backward(attended)));
}

}  // namespace cohort::testing
