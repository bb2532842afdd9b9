// The second half of a decoder layer: an MLP that all rows go through, or a mixture of some, of
// which each row goes through its own.
#ifndef COHORT_TESTS_EXAMPLES_FEED_FORWARD_H_
#define COHORT_TESTS_EXAMPLES_FEED_FORWARD_H_

#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "tests/examples/matrix.h"

namespace cohort::testing {

struct MlpWeights {
  static MlpWeights Random(int hidden, int inner, std::mt19937& random);
  // Shard `index` of so many: columns of `up`, rows of `down`.
  MlpWeights Shard(int index, int shards) const;

  Matrix up;    // [hidden, inner]
  Matrix down;  // [inner, hidden]
};

// What lies between a shard and the others. A whole layer's do nothing.
struct Joints {
  using Joint = std::function<Matrix(const Matrix&)>;
  static Matrix Same(const Matrix& matrix) { return matrix; }

  Joint enter = Same;           // in front of weights cut by columns
  Joint enter_backward = Same;  // of the gradient of what enter gave
  Joint leave = Same;           // behind weights cut by rows
  Joint leave_backward = Same;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // Keeps what Backward needs.
  virtual Matrix Forward(const Matrix& input) = 0;
  // The gradient of the last Forward's input, from that of what it gave.
  virtual Matrix Backward(const Matrix& gradient) = 0;
  // By MLP, those of the weights, by the last Backward.
  const std::vector<MlpWeights>& gradients() const { return gradients_; }

 protected:
  std::vector<MlpWeights> gradients_;
};

class DenseMlp final : public FeedForward {
 public:
  explicit DenseMlp(MlpWeights weights, Joints joints = {})
      : weights_(std::move(weights)), joints_(std::move(joints)) {}

  Matrix Forward(const Matrix& input) override;
  Matrix Backward(const Matrix& gradient) override;

 private:
  const MlpWeights weights_;
  const Joints joints_;
  Matrix entered_;
};

// Rows, and which expert looks at which of them.
struct ExpertRows {
  struct Entry {
    int row = 0;
    int expert = 0;
    double weight = 0;
  };
  Matrix rows;
  std::vector<Entry> entries;
};

// How rows come to their experts and back.
struct ExpertJoints {
  std::function<ExpertRows(const Matrix&)> dispatch;
  // Of a sum for each row that the last dispatch brought.
  std::function<Matrix(const Matrix&)> combine;
};

// The router is fixed: its weights have no gradient.
class Mixture final : public FeedForward {
 public:
  Mixture(std::vector<MlpWeights> experts, ExpertJoints joints)
      : experts_(std::move(experts)), joints_(std::move(joints)) {}

  Matrix Forward(const Matrix& input) override;
  Matrix Backward(const Matrix& gradient) override;

 private:
  const std::vector<MlpWeights> experts_;
  const ExpertJoints joints_;
  Matrix rows_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_EXAMPLES_FEED_FORWARD_H_
