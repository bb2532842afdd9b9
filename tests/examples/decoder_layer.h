// A small decoder layer, forward and backward, in plain loops: attention over causal heads and a
// feed-forward half, each behind a norm and beside a residual. The same code is the whole layer of
// one process and a rank's shard of it; the joints connect the shards.
#ifndef COHORT_TESTS_EXAMPLES_DECODER_LAYER_H_
#define COHORT_TESTS_EXAMPLES_DECODER_LAYER_H_

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/examples/feed_forward.h"
#include "tests/examples/matrix.h"

namespace cohort::testing {

struct AttentionWeights {
  static AttentionWeights Random(int hidden, std::mt19937& random);
  // Shard `index` of `shards`, by heads: columns of the first three, rows of the last.
  AttentionWeights Shard(int index, int shards) const;

  Matrix query, key, value;  // [hidden, heads * head]
  Matrix out;                // [heads * head, hidden]
};

class DecoderLayer {
 public:
  // `head`: columns of one head.
  DecoderLayer(AttentionWeights weights, int head, std::unique_ptr<FeedForward> feed_forward,
               Joints joints = {})
      : weights_(std::move(weights)),
        head_(head),
        feed_forward_(std::move(feed_forward)),
        joints_(std::move(joints)) {}

  // [rows, hidden], the rows of a sequence; keeps what Backward needs.
  Matrix Forward(const Matrix& input);
  // Returns the gradient of the last Forward's input, from the gradient of its output.
  Matrix Backward(const Matrix& gradient);
  // The gradients of the weights, from the last Backward.
  const AttentionWeights& gradients() const { return gradients_; }
  const FeedForward& feed_forward() const { return *feed_forward_; }

 private:
  Matrix Attend();
  // Returns the gradient of `entered_`.
  Matrix AttendBackward(const Matrix& gradient);

  const AttentionWeights weights_;
  const int head_;
  std::unique_ptr<FeedForward> feed_forward_;
  const Joints joints_;
  AttentionWeights gradients_;

  // State of the last Forward.
  Matrix input_, middle_;
  Matrix entered_, query_, key_, value_, heads_;
  std::vector<Matrix> attention_;  // by head
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_EXAMPLES_DECODER_LAYER_H_
