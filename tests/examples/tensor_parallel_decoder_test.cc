// A decoder layer whose heads and inner columns are split over the ranks of a group: through the
// regions, forward and backward, it is what one process computes.
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/parallel/tensor_parallel/regions.h"
#include "gtest/gtest.h"
#include "tests/examples/decoder_layer.h"
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
  // A verb of matrices out of one of tensors. Errors are the test's.
  template <typename Verb>
  DecoderJoints::Joint Through(client::Group& group, Verb verb) {
    return [&group, verb](const Matrix& matrix) {
      Tensor host = Tensor::Uninitialized(DataType::kF64, {matrix.rows, matrix.columns});
      std::copy(matrix.values.begin(), matrix.values.end(), static_cast<double*>(host.data()));
      const absl::StatusOr<Tensor> result = verb(Upload(group, host));
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return Matrix();
      host = Download(group, *result);
      Matrix joined(static_cast<int>(host.shape()[0]), static_cast<int>(host.shape()[1]));
      const auto* const values = static_cast<const double*>(host.data());
      joined.values.assign(values, values + host.count());
      return joined;
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

  void RunLayer(int ranks, bool sequence_parallel);
};

void TensorParallelDecoder::RunLayer(int ranks, bool sequence_parallel) {
  std::mt19937 random(static_cast<uint32_t>(ranks));
  const DecoderWeights weights = cohort::testing::RandomWeights(kHidden, kInner, random);
  const Matrix input = Matrix::Random(kSequence, kHidden, random);
  const Matrix gradient = Matrix::Random(kSequence, kHidden, random);
  DecoderLayer whole(weights, kHead);
  const Matrix output = whole.Forward(input);
  const Matrix input_gradient = whole.Backward(gradient);

  MakeGroup(ranks);
  ExpectOk(OnRanks([&](client::Group& group) {
    // Outside of the split weights a rank has all rows, or, sequence parallel, its own.
    const int rows = sequence_parallel ? kSequence / ranks : kSequence;
    const int begin = sequence_parallel ? group.rank() * rows : 0;
    const DecoderJoints joints =
        sequence_parallel ? JointsOf(group, SequenceGather(group), SequenceReduceScatter(group))
                          : JointsOf(group, CopyRegion(group), ReduceRegion(group));
    DecoderLayer shard(ShardOf(weights, group.rank(), ranks), kHead, joints);
    const auto expect_rows = [&](const Matrix& own, const Matrix& all) {
      EXPECT_LT(LargestDifference(own, RowsOf(all, begin, rows)), kRounding);
    };
    expect_rows(shard.Forward(RowsOf(input, begin, rows)), output);
    expect_rows(shard.Backward(RowsOf(gradient, begin, rows)), input_gradient);

    const DecoderWeights expected = ShardOf(whole.gradients(), group.rank(), ranks);
    const DecoderWeights& own = shard.gradients();
    EXPECT_LT(LargestDifference(own.query, expected.query), kRounding);
    EXPECT_LT(LargestDifference(own.key, expected.key), kRounding);
    EXPECT_LT(LargestDifference(own.value, expected.value), kRounding);
    EXPECT_LT(LargestDifference(own.out, expected.out), kRounding);
    EXPECT_LT(LargestDifference(own.up, expected.up), kRounding);
    EXPECT_LT(LargestDifference(own.down, expected.down), kRounding);
    return absl::OkStatus();
  }));
}

TEST_P(TensorParallelDecoder, IsWhatOneProcessComputes) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    RunLayer(ranks, /*sequence_parallel=*/false);
  }
}

TEST_P(TensorParallelDecoder, SequenceParallelIsTheSame) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    RunLayer(ranks, /*sequence_parallel=*/true);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorParallelDecoder,
                         ::testing::Values(Form::kDaemon, Form::kDevice), FormName);

}  // namespace
}  // namespace cohort::parallel
