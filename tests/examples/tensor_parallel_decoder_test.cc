// Decoder layers over tensor x replica x stage ranks. The ranks of a tensor group split the heads,
// and the columns of an MLP. The ranks of all replicas of a stage split the experts. Stages hold
// successive layers. With the regions, forward and backward give the results of one process.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/collectives/collectives.h"
#include "client/parallel/collectives/send_receive.h"
#include "client/parallel/moe/expert_dispatch.h"
#include "client/parallel/tensor_parallel/regions.h"
#include "gtest/gtest.h"
#include "tests/examples/decoder_layer.h"
#include "tests/examples/decoder_model.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::parallel {
namespace {

using ::cohort::testing::AttentionWeights;
using ::cohort::testing::DecoderLayer;
using ::cohort::testing::DecoderModel;
using ::cohort::testing::DenseMlp;
using ::cohort::testing::ExpertJoints;
using ::cohort::testing::ExpertRows;
using ::cohort::testing::FeedForward;
using ::cohort::testing::Form;
using ::cohort::testing::FormName;
using ::cohort::testing::Joints;
using ::cohort::testing::kExperts;
using ::cohort::testing::kHead;
using ::cohort::testing::kHidden;
using ::cohort::testing::kSequence;
using ::cohort::testing::kSlots;
using ::cohort::testing::LargestDifference;
using ::cohort::testing::Matrix;
using ::cohort::testing::Mixture;
using ::cohort::testing::MlpWeights;
using ::cohort::testing::Routes;
using ::cohort::testing::RowsOf;

constexpr double kRounding = 1e-9;

Tensor TensorOf(const Matrix& matrix) {
  const Tensor tensor = Tensor::Uninitialized(DataType::kF64, {matrix.rows, matrix.columns});
  std::copy(matrix.values.begin(), matrix.values.end(), static_cast<double*>(tensor.data()));
  return tensor;
}
Matrix MatrixOf(const Tensor& tensor) {
  Matrix matrix(static_cast<int>(tensor.shape()[0]), static_cast<int>(tensor.shape()[1]));
  const auto* const values = static_cast<const double*>(tensor.data());
  matrix.values.assign(values, values + tensor.count());
  return matrix;
}

struct Split {
  int tensor = 1;    // ranks that split a layer
  int replicas = 1;  // each has a sequence of its own
  int stages = 1;    // of a layer each
  bool sequence_parallel = false;
  bool mixture = false;
};

// The routes of one rank's tokens.
ExpertTokens TokensOf(const Routes& routes, int begin, int rows) {
  const Tensor ids = Tensor::Uninitialized(DataType::kI32, {rows, kSlots});
  const Tensor weights = Tensor::Uninitialized(DataType::kF32, {rows, kSlots});
  const int count = rows * kSlots;
  std::copy_n(routes.ids.begin() + begin * kSlots, count, static_cast<int32_t*>(ids.data()));
  std::copy_n(routes.weights.begin() + begin * kSlots, count, static_cast<float*>(weights.data()));
  return {Tensor(), ids, weights, {}};
}

class TensorParallelDecoder : public cohort::testing::ParallelTest {
 protected:
  void RunLayers(const Split& split);

 private:
  // One rank of the split.
  struct Place {
    int shard = 0;
    int replica = 0;
    int stage = 0;
  };
  struct RankGroups {
    std::unique_ptr<client::Group> tensor;    // by shard
    std::unique_ptr<client::Group> experts;   // by replica, then by shard
    std::unique_ptr<client::Group> data;      // by replica
    std::unique_ptr<client::Group> pipeline;  // by stage
  };

  std::unique_ptr<client::Group> FormGroup(const std::string& name, int rank, int size) {
    absl::StatusOr<std::unique_ptr<client::Group>> group = Join(name, rank, size);
    EXPECT_TRUE(group.ok()) << name << ": " << group.status();
    return group.ok() ? *std::move(group) : nullptr;
  }
  RankGroups FormGroups(const Split& split, const Place& place, const std::string& run);

  // Makes an operation on matrices from one on tensors. An error fails the test.
  template <typename Call>
  Joints::Joint Through(client::Group& group, Call call) {
    return [&group, call](const Matrix& matrix) {
      const absl::StatusOr<Tensor> result = call(Upload(group, TensorOf(matrix)));
      EXPECT_TRUE(result.ok()) << result.status();
      return result.ok() ? MatrixOf(Download(group, *result)) : Matrix(matrix.rows, matrix.columns);
    };
  }
  template <typename Enter, typename Leave>
  Joints JointsOf(client::Group& group, Enter enter, Leave leave) {
    Joints joints;
    joints.enter = Through(group, [=](const Tensor& x) { return enter.Forward(x); });
    joints.enter_backward = Through(group, [=](const Tensor& x) { return enter.Backward(x); });
    joints.leave = Through(group, [=](const Tensor& x) { return leave.Forward(x); });
    joints.leave_backward = Through(group, [=](const Tensor& x) { return leave.Backward(x); });
    return joints;
  }
  // For tokens that belong to this rank alone.
  ExpertJoints ExpertJointsOf(client::Group& group, const ExpertTokens& tokens);
  Joints LayerJoints(const Split& split, client::Group& tensor);
  std::unique_ptr<FeedForward> ShardOfFeedForward(const Split& split, const Place& place,
                                                  const DecoderModel& model,
                                                  const RankGroups& groups);
  void ExpectGradients(const Place& place, const DecoderModel& model, const DecoderLayer& layer,
                       const RankGroups& groups);
  void RunRank(const Split& split, const Place& place, const DecoderModel& model,
               const RankGroups& groups);

  int runs_ = 0;
};

TensorParallelDecoder::RankGroups TensorParallelDecoder::FormGroups(const Split& split,
                                                                    const Place& place,
                                                                    const std::string& run) {
  const auto& [shard, replica, stage] = place;
  RankGroups groups;
  groups.tensor =
      FormGroup(absl::StrCat(run, "-tensor-", stage, "-", replica), shard, split.tensor);
  groups.experts = FormGroup(absl::StrCat(run, "-experts-", stage), replica * split.tensor + shard,
                             split.replicas * split.tensor);
  groups.data = FormGroup(absl::StrCat(run, "-data-", stage, "-", shard), replica, split.replicas);
  groups.pipeline =
      FormGroup(absl::StrCat(run, "-pipeline-", replica, "-", shard), stage, split.stages);
  return groups;
}

ExpertJoints TensorParallelDecoder::ExpertJointsOf(client::Group& group,
                                                   const ExpertTokens& tokens) {
  const auto placement = ExpertPlacement::Blocks(kExperts, group.size());
  const auto batch = std::make_shared<ExpertBatch>();
  ExpertJoints joints;
  joints.dispatch = [&group, tokens, placement, batch](const Matrix& rows) {
    ExpertTokens own = tokens;
    own.hidden = TensorOf(rows);
    absl::StatusOr<ExpertBatch> came = DispatchToExperts(group, own, *placement);
    EXPECT_TRUE(came.ok()) << came.status();
    if (!came.ok()) return ExpertRows();
    *batch = *std::move(came);
    ExpertRows result = {MatrixOf(batch->hidden), {}};
    const auto* const ids = static_cast<const int32_t*>(batch->ids.data());
    const auto* const weights = static_cast<const float*>(batch->weights.data());
    for (const ExpertRow& part : batch->by_expert) {
      const int64_t at = part.row * kSlots + part.slot;
      result.entries.push_back({static_cast<int>(part.row), ids[at], weights[at]});
    }
    return result;
  };
  joints.combine = [&group, batch](const Matrix& sums) {
    const absl::StatusOr<Tensor> combined = CombineFromExperts(group, *batch, TensorOf(sums));
    EXPECT_TRUE(combined.ok()) << combined.status();
    return combined.ok() ? MatrixOf(*combined) : Matrix();
  };
  return joints;
}

Joints TensorParallelDecoder::LayerJoints(const Split& split, client::Group& tensor) {
  if (split.sequence_parallel) {
    return JointsOf(tensor, SequenceGather(tensor), SequenceReduceScatter(tensor));
  }
  return JointsOf(tensor, CopyRegion(tensor), ReduceRegion(tensor));
}

// A mixture whose tokens the ranks of a tensor group share.
class SharedMixture final : public FeedForward {
 public:
  SharedMixture(Mixture mixture, Joints joints)
      : mixture_(std::move(mixture)), joints_(std::move(joints)) {}

  Matrix Forward(const Matrix& input) override {
    return joints_.leave(mixture_.Forward(joints_.enter(input)));
  }
  Matrix Backward(const Matrix& gradient) override {
    const Matrix result =
        joints_.enter_backward(mixture_.Backward(joints_.leave_backward(gradient)));
    gradients_ = mixture_.gradients();
    return result;
  }

 private:
  Mixture mixture_;
  const Joints joints_;
};

std::unique_ptr<FeedForward> TensorParallelDecoder::ShardOfFeedForward(const Split& split,
                                                                       const Place& place,
                                                                       const DecoderModel& model,
                                                                       const RankGroups& groups) {
  const std::vector<MlpWeights>& mlps = model.stages[static_cast<size_t>(place.stage)].mlps;
  client::Group& tensor = *groups.tensor;
  if (!split.mixture) {
    return std::make_unique<DenseMlp>(mlps[0].Shard(place.shard, split.tensor),
                                      LayerJoints(split, tensor));
  }
  std::vector<MlpWeights> experts;
  const auto placement = ExpertPlacement::Blocks(kExperts, groups.experts->size());
  for (const int64_t expert : placement->ExpertsOf(groups.experts->rank())) {
    experts.push_back(mlps[static_cast<size_t>(expert)]);
  }
  const int rows = kSequence / split.tensor;
  const Routes& routes = model.replicas[static_cast<size_t>(place.replica)].routes;
  Mixture mixture(std::move(experts),
                  ExpertJointsOf(*groups.experts, TokensOf(routes, place.shard * rows, rows)));
  // If all ranks of the tensor group have all rows, each sends its part of them to the experts.
  const Joints joints =
      split.sequence_parallel
          ? Joints()
          : JointsOf(tensor, SequenceScatter(tensor),
                     SequenceGather(tensor, {.tensor_parallel_output_grad = false}));
  return std::make_unique<SharedMixture>(std::move(mixture), joints);
}

void TensorParallelDecoder::ExpectGradients(const Place& place, const DecoderModel& model,
                                            const DecoderLayer& layer, const RankGroups& groups) {
  const auto at = static_cast<size_t>(place.stage);
  const auto total = [&](const auto& of_layer) {
    Matrix sum = of_layer(model.replicas[0].layers[at]);
    for (size_t i = 1; i < model.replicas.size(); ++i) {
      sum = Sum(sum, of_layer(model.replicas[i].layers[at]));
    }
    return sum;
  };
  const auto sum_of_replicas = Through(
      *groups.data, [&](const Tensor& gradient) { return AllReduce(*groups.data, gradient); });
  const int shards = groups.tensor->size();
  for (Matrix AttentionWeights::*const weight :
       {&AttentionWeights::query, &AttentionWeights::key, &AttentionWeights::value,
        &AttentionWeights::out}) {
    const Matrix expected = total([&](const DecoderLayer& whole) {
      return whole.gradients().Shard(place.shard, shards).*weight;
    });
    EXPECT_LT(LargestDifference(sum_of_replicas(layer.gradients().*weight), expected), kRounding);
  }
  const std::vector<MlpWeights>& own = layer.feed_forward().gradients();
  for (Matrix MlpWeights::*const weight : {&MlpWeights::up, &MlpWeights::down}) {
    if (!model.mixture) {
      const Matrix expected = total([&](const DecoderLayer& whole) {
        return whole.feed_forward().gradients()[0].Shard(place.shard, shards).*weight;
      });
      EXPECT_LT(LargestDifference(sum_of_replicas(own[0].*weight), expected), kRounding);
      continue;
    }
    // The rows of an expert already come from all replicas.
    const auto placement = ExpertPlacement::Blocks(kExperts, groups.experts->size());
    const std::vector<int64_t> experts = placement->ExpertsOf(groups.experts->rank());
    for (size_t i = 0; i < experts.size(); ++i) {
      const Matrix expected = total([&](const DecoderLayer& whole) {
        return whole.feed_forward().gradients()[static_cast<size_t>(experts[i])].*weight;
      });
      EXPECT_LT(LargestDifference(own[i].*weight, expected), kRounding);
    }
  }
}

void TensorParallelDecoder::RunRank(const Split& split, const Place& place,
                                    const DecoderModel& model, const RankGroups& groups) {
  // Outside of split weights a rank has all rows, or its own rows if sequence parallel.
  const int rows = split.sequence_parallel ? kSequence / split.tensor : kSequence;
  const int begin = split.sequence_parallel ? place.shard * rows : 0;
  const auto stage = static_cast<size_t>(place.stage);
  const DecoderModel::Replica& whole = model.replicas[static_cast<size_t>(place.replica)];
  DecoderLayer layer(model.stages[stage].attention.Shard(place.shard, split.tensor), kHead,
                     ShardOfFeedForward(split, place, model, groups),
                     LayerJoints(split, *groups.tensor));

  Messages messages(*groups.pipeline);
  const auto receive = [&](int from) {
    const absl::StatusOr<Tensor> tensor = Receive(messages, {.source = from});
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? MatrixOf(Download(*groups.pipeline, *tensor)) : Matrix(rows, kHidden);
  };
  const auto send = [&](int to, const Matrix& matrix) {
    const Tensor tensor = Upload(*groups.pipeline, TensorOf(matrix));
    const absl::Status sent = Send(messages, tensor, {.destination = to});
    EXPECT_TRUE(sent.ok()) << sent;
  };
  const auto expect_rows = [&](const Matrix& own, const Matrix& all) {
    EXPECT_LT(LargestDifference(own, RowsOf(all, begin, rows)), kRounding);
  };
  const bool is_first = place.stage == 0;
  const bool is_last = place.stage == split.stages - 1;

  const Matrix output =
      layer.Forward(is_first ? RowsOf(whole.outputs[0], begin, rows) : receive(place.stage - 1));
  expect_rows(output, whole.outputs[stage + 1]);
  if (!is_last) send(place.stage + 1, output);
  const Matrix gradient = layer.Backward(is_last ? RowsOf(whole.gradients[stage + 1], begin, rows)
                                                 : receive(place.stage + 1));
  expect_rows(gradient, whole.gradients[stage]);
  if (!is_first) send(place.stage - 1, gradient);

  ExpectGradients(place, model, layer, groups);
  // A rank that leaves ends the group for all ranks, so they wait at a barrier first.
  for (client::Group* const group :
       {groups.pipeline.get(), groups.data.get(), groups.experts.get(), groups.tensor.get()}) {
    EXPECT_TRUE(group->Barrier().ok());
  }
}

void TensorParallelDecoder::RunLayers(const Split& split) {
  SCOPED_TRACE(absl::StrCat(split.tensor, " x ", split.replicas, " x ", split.stages, " ranks",
                            split.sequence_parallel ? ", sequence parallel" : "",
                            split.mixture ? ", with experts" : ""));
  std::mt19937 random(static_cast<uint32_t>(split.tensor));
  const DecoderModel model(split.replicas, split.stages, split.mixture, random);
  const std::string run = absl::StrCat("decoder-", runs_++);
  cohort::testing::OnThreads(split.tensor * split.replicas * split.stages, [&](int rank) {
    const Place place = {rank % split.tensor, rank / split.tensor % split.replicas,
                         rank / split.tensor / split.replicas};
    const RankGroups groups = FormGroups(split, place, run);
    const bool formed = groups.tensor != nullptr && groups.experts != nullptr &&
                        groups.data != nullptr && groups.pipeline != nullptr;
    if (formed) RunRank(split, place, model, groups);
  });
}

TEST_P(TensorParallelDecoder, MatchesOneProcess) {
  for (const int tensor : {1, 2, 4}) RunLayers({.tensor = tensor});
}

TEST_P(TensorParallelDecoder, SequenceParallelIsTheSame) {
  for (const int tensor : {1, 2, 4}) RunLayers({.tensor = tensor, .sequence_parallel = true});
}

TEST_P(TensorParallelDecoder, WithExperts) {
  for (const bool sequence_parallel : {false, true}) {
    for (const int tensor : {1, 2, 4}) {
      RunLayers({.tensor = tensor, .sequence_parallel = sequence_parallel, .mixture = true});
    }
  }
}

TEST_P(TensorParallelDecoder, InStagesAndReplicas) {
  for (const bool sequence_parallel : {false, true}) {
    for (const bool mixture : {false, true}) {
      RunLayers({.tensor = 2,
                 .replicas = 2,
                 .stages = 2,
                 .sequence_parallel = sequence_parallel,
                 .mixture = mixture});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorParallelDecoder,
                         ::testing::Values(Form::kDaemon, Form::kAttached), FormName);

}  // namespace
}  // namespace cohort::parallel
