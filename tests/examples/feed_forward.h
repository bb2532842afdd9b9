// The second half of a decoder layer: an MLP that all rows pass, or a mixture of experts, of which
// each row passes some.
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
  // Shard `index` of `shards`: columns of `up`, rows of `down`.
  MlpWeights Shard(int index, int shards) const;

  Matrix up;    // [hidden, inner]
  Matrix down;  // [inner, hidden]
};

// The connections between a shard and the others. Those of a whole layer do nothing.
struct Joints {
  using Joint = std::function<Matrix(const Matrix&)>;
  static Matrix Same(const Matrix& matrix) { return matrix; }

  Joint enter = Same;           // in front of weights cut by columns
  Joint enter_backward = Same;  // of the gradient of enter's output
  Joint leave = Same;           // behind weights cut by rows
  Joint leave_backward = Same;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // Keeps what Backward needs.
  virtual Matrix Forward(const Matrix& input) = 0;
  // Returns the gradient of the last Forward's input, from the gradient of its output.
  virtual Matrix Backward(const Matrix& gradient) = 0;
  // The gradients of the weights, by MLP, from the last Backward.
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

// Rows, and the experts that process each of them.
struct ExpertRows {
  struct Entry {
    int row = 0;
    int expert = 0;
    double weight = 0;
  };
  Matrix rows;
  std::vector<Entry> entries;
};

// How rows reach their experts and return.
struct ExpertJoints {
  std::function<ExpertRows(const Matrix&)> dispatch;
  // Takes a sum for each row that the last dispatch brought.
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
