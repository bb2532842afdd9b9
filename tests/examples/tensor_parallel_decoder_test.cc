// Decoder layers whose heads and inner columns are split over the ranks of a group, and which
// follow each other in stages: through the regions, forward and backward, what one process
// computes.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/collectives/send_receive.h"
#include "client/parallel/tensor_parallel/regions.h"
#include "gtest/gtest.h"
#include "tests/examples/decoder_layer.h"
#include "tests/failure/members.h"
#include "tests/parallel/parallel_test.h"

namespace cohort::parallel {
namespace {

using ::cohort::testing::DecoderJoints;
using ::cohort::testing::DecoderLayer;
using ::cohort::testing::DecoderWeights;
using ::cohort::testing::Form;
using ::cohort::testing::FormName;
using ::cohort::testing::LargestDifference;
using ::cohort::testing::Matrix;

constexpr int kSequence = 8;
constexpr int kHead = 3;
constexpr int kHeads = 4;
constexpr int kHidden = kHead * kHeads;
constexpr int kInner = 16;
constexpr double kRounding = 1e-9;

class TensorParallelDecoder : public cohort::testing::ParallelTest {
 protected:
  struct Split {
    int tensor = 1;  // ranks that split a layer
    int stages = 1;
    bool sequence_parallel = false;
  };

  static Tensor TensorOf(const Matrix& matrix) {
    const Tensor tensor = Tensor::Uninitialized(DataType::kF64, {matrix.rows, matrix.columns});
    std::copy(matrix.values.begin(), matrix.values.end(), static_cast<double*>(tensor.data()));
    return tensor;
  }
  static Matrix MatrixOf(const Tensor& tensor) {
    Matrix matrix(static_cast<int>(tensor.shape()[0]), static_cast<int>(tensor.shape()[1]));
    const auto* const values = static_cast<const double*>(tensor.data());
    matrix.values.assign(values, values + tensor.count());
    return matrix;
  }

  // A verb of matrices out of one of tensors. Errors are the test's.
  template <typename Verb>
  DecoderJoints::Joint Through(client::Group& group, Verb verb) {
    return [&group, verb](const Matrix& matrix) {
      const absl::StatusOr<Tensor> result = verb(Upload(group, TensorOf(matrix)));
      EXPECT_TRUE(result.ok()) << result.status();
      return result.ok() ? MatrixOf(Download(group, *result)) : Matrix();
    };
  }
  template <typename Enter, typename Leave>
  DecoderJoints JointsOf(client::Group& group, Enter enter, Leave leave) {
    DecoderJoints joints;
    joints.enter = Through(group, [=](const Tensor& x) { return enter.Forward(x); });
    joints.enter_backward = Through(group, [=](const Tensor& x) { return enter.Backward(x); });
    joints.leave = Through(group, [=](const Tensor& x) { return leave.Forward(x); });
    joints.leave_backward = Through(group, [=](const Tensor& x) { return leave.Backward(x); });
    return joints;
  }

  void RunLayers(const Split& split);

  int runs_ = 0;
};

// A layer for each stage.
void TensorParallelDecoder::RunLayers(const Split& split) {
  SCOPED_TRACE(absl::StrCat(split.tensor, " x ", split.stages, " ranks",
                            split.sequence_parallel ? ", sequence parallel" : ""));
  std::mt19937 random(static_cast<uint32_t>(split.tensor));
  const Matrix input = Matrix::Random(kSequence, kHidden, random);
  const Matrix gradient = Matrix::Random(kSequence, kHidden, random);
  std::vector<DecoderWeights> weights;
  std::vector<DecoderLayer> layers;
  std::vector<Matrix> outputs = {input};  // behind each stage, and in front of the first
  for (int stage = 0; stage < split.stages; ++stage) {
    weights.push_back(cohort::testing::RandomWeights(kHidden, kInner, random));
    layers.emplace_back(weights.back(), kHead);
    outputs.push_back(layers.back().Forward(outputs.back()));
  }
  std::vector<Matrix> gradients(outputs.size(), gradient);
  for (size_t stage = layers.size(); stage-- > 0;) {
    gradients[stage] = layers[stage].Backward(gradients[stage + 1]);
  }

  const std::string run = absl::StrCat("decoder-", runs_++);
  cohort::testing::OnThreads(split.tensor * split.stages, [&](int rank) {
    const int shard = rank % split.tensor;
    const int stage = rank / split.tensor;
    const auto at = static_cast<size_t>(stage);
    const auto tensor = Join(absl::StrCat(run, "-tensor-", stage), shard, split.tensor);
    const auto pipeline = Join(absl::StrCat(run, "-pipeline-", shard), stage, split.stages);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    client::Group& group = **tensor;
    Messages messages(**pipeline);

    // Outside of the split weights a rank has all rows, or, sequence parallel, its own.
    const int rows = split.sequence_parallel ? kSequence / split.tensor : kSequence;
    const int begin = split.sequence_parallel ? shard * rows : 0;
    DecoderLayer layer(ShardOf(weights[at], shard, split.tensor), kHead,
                       split.sequence_parallel
                           ? JointsOf(group, SequenceGather(group), SequenceReduceScatter(group))
                           : JointsOf(group, CopyRegion(group), ReduceRegion(group)));
    const auto receive = [&](int from) {
      const absl::StatusOr<Tensor> tensor = Receive(messages, {.source = from});
      EXPECT_TRUE(tensor.ok()) << tensor.status();
      return tensor.ok() ? MatrixOf(Download(**pipeline, *tensor)) : Matrix(rows, kHidden);
    };
    const auto send = [&](int to, const Matrix& matrix) {
      const absl::Status sent =
          Send(messages, Upload(**pipeline, TensorOf(matrix)), {.destination = to});
      EXPECT_TRUE(sent.ok()) << sent;
    };
    const auto expect_rows = [&](const Matrix& own, const Matrix& all) {
      EXPECT_LT(LargestDifference(own, RowsOf(all, begin, rows)), kRounding);
    };
    const bool is_first = stage == 0;
    const bool is_last = stage == split.stages - 1;

    const Matrix forward =
        layer.Forward(is_first ? RowsOf(input, begin, rows) : receive(stage - 1));
    expect_rows(forward, outputs[at + 1]);
    if (!is_last) send(stage + 1, forward);
    const Matrix backward =
        layer.Backward(is_last ? RowsOf(gradient, begin, rows) : receive(stage + 1));
    expect_rows(backward, gradients[at]);
    if (!is_first) send(stage - 1, backward);

    const DecoderWeights expected = ShardOf(layers[at].gradients(), shard, split.tensor);
    const DecoderWeights& own = layer.gradients();
    EXPECT_LT(LargestDifference(own.query, expected.query), kRounding);
    EXPECT_LT(LargestDifference(own.key, expected.key), kRounding);
    EXPECT_LT(LargestDifference(own.value, expected.value), kRounding);
    EXPECT_LT(LargestDifference(own.out, expected.out), kRounding);
    EXPECT_LT(LargestDifference(own.up, expected.up), kRounding);
    EXPECT_LT(LargestDifference(own.down, expected.down), kRounding);
    // Who leaves ends the group for all.
    EXPECT_TRUE((*pipeline)->Barrier().ok());
    EXPECT_TRUE(group.Barrier().ok());
  });
}

TEST_P(TensorParallelDecoder, IsWhatOneProcessComputes) {
  for (const int tensor : {1, 2, 4}) RunLayers({.tensor = tensor});
}

TEST_P(TensorParallelDecoder, SequenceParallelIsTheSame) {
  for (const int tensor : {1, 2, 4}) RunLayers({.tensor = tensor, .sequence_parallel = true});
}

TEST_P(TensorParallelDecoder, InStages) {
  for (const bool sequence_parallel : {false, true}) {
    RunLayers({.tensor = 2, .stages = 2, .sequence_parallel = sequence_parallel});
    RunLayers({.tensor = 2, .stages = 4, .sequence_parallel = sequence_parallel});
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorParallelDecoder,
                         ::testing::Values(Form::kDaemon, Form::kDevice), FormName);

}  // namespace
}  // namespace cohort::parallel
