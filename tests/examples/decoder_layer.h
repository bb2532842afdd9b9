// A small decoder layer, forward and backward, in plain loops: attention over causal heads and an
// MLP, each behind a norm and beside a residual. The same code is one process's whole layer, and a
// rank's shard of it: what lies between shards is in its joints.
#ifndef COHORT_TESTS_EXAMPLES_DECODER_LAYER_H_
#define COHORT_TESTS_EXAMPLES_DECODER_LAYER_H_

#include <functional>
#include <random>
#include <vector>

namespace cohort::testing {

struct Matrix {
  Matrix() = default;
  Matrix(int rows, int columns)
      : rows(rows), columns(columns), values(static_cast<size_t>(rows * columns)) {}
  static Matrix Random(int rows, int columns, std::mt19937& random);

  double& at(int row, int column) { return values[static_cast<size_t>(row * columns + column)]; }
  double at(int row, int column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }

  int rows = 0;
  int columns = 0;
  std::vector<double> values;
};

// begin..begin+size-1.
Matrix RowsOf(const Matrix& matrix, int begin, int size);
Matrix ColumnsOf(const Matrix& matrix, int begin, int size);
double LargestDifference(const Matrix& a, const Matrix& b);

// Of a shard: the columns of the first four and of `up`, the rows of the others.
struct DecoderWeights {
  Matrix query, key, value;  // [hidden, heads * head]
  Matrix out;                // [heads * head, hidden]
  Matrix up;                 // [hidden, inner]
  Matrix down;               // [inner, hidden]
};

DecoderWeights RandomWeights(int hidden, int inner, std::mt19937& random);
// Shard `index` of so many, by heads.
DecoderWeights ShardOf(const DecoderWeights& whole, int index, int shards);

// Where activations come to shards and leave them. Those of a whole layer do nothing.
struct DecoderJoints {
  using Joint = std::function<Matrix(const Matrix&)>;
  static Matrix Same(const Matrix& matrix) { return matrix; }

  Joint enter = Same;           // in front of weights cut by columns
  Joint enter_backward = Same;  // of the gradient of what enter gave
  Joint leave = Same;           // behind weights cut by rows
  Joint leave_backward = Same;
};

class DecoderLayer {
 public:
  // `head`: columns of one head.
  DecoderLayer(DecoderWeights weights, int head, DecoderJoints joints = {})
      : weights_(std::move(weights)), head_(head), joints_(std::move(joints)) {}

  // [rows, hidden], the rows of a sequence; keeps what Backward needs.
  Matrix Forward(const Matrix& input);
  // The gradient of the last Forward's input, from that of what it gave.
  Matrix Backward(const Matrix& gradient);
  // Those of the weights, by the last Backward.
  const DecoderWeights& gradients() const { return gradients_; }

 private:
  Matrix Attend();
  // To those of query, key and value, in gradients of `entered_`.
  Matrix AttendBackward(const Matrix& gradient);

  const DecoderWeights weights_;
  const int head_;
  const DecoderJoints joints_;
  DecoderWeights gradients_;

  // Of the last Forward.
  Matrix input_, middle_;
  Matrix entered_, query_, key_, value_, heads_;
  std::vector<Matrix> attention_;  // by head
  Matrix entered_mlp_, up_, active_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_EXAMPLES_DECODER_LAYER_H_
