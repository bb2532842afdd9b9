#include "tests/examples/decoder_model.h"

#include <utility>

namespace cohort::testing {

Routes::Routes(int tokens, std::mt19937& random) {
  for (int token = 0; token < tokens; ++token) {
    const auto first = static_cast<int32_t>(random() % kExperts);
    ids.push_back(first);
    ids.push_back(random() % 4 == 0 ? -1 : (first + 1) % kExperts);
    weights.push_back(0.75f);
    weights.push_back(0.25f);
  }
}

DecoderModel::DecoderModel(int replica_count, int stage_count, bool with_mixture,
                           std::mt19937& random)
    : mixture(with_mixture) {
  for (int stage = 0; stage < stage_count; ++stage) {
    stages.push_back({AttentionWeights::Random(kHidden, random), {}});
    for (int mlp = 0; mlp < (mixture ? kExperts : 1); ++mlp) {
      stages.back().mlps.push_back(MlpWeights::Random(kHidden, kInner, random));
    }
  }
  for (int i = 0; i < replica_count; ++i) {
    replicas.push_back({Routes(kSequence, random), {}, {}, {}});
    Replica& replica = replicas.back();
    replica.outputs.push_back(Matrix::Random(kSequence, kHidden, random));
  }
  for (Replica& replica : replicas) {
    for (const Stage& stage : stages) {
      replica.layers.emplace_back(stage.attention, kHead, FeedForwardOf(stage, replica.routes));
      replica.outputs.push_back(replica.layers.back().Forward(replica.outputs.back()));
    }
    replica.gradients.assign(replica.outputs.size(), Matrix::Random(kSequence, kHidden, random));
    for (size_t stage = stages.size(); stage-- > 0;) {
      replica.gradients[stage] = replica.layers[stage].Backward(replica.gradients[stage + 1]);
    }
  }
}

std::unique_ptr<FeedForward> DecoderModel::FeedForwardOf(const Stage& stage,
                                                         const Routes& routes) const {
  if (!mixture) return std::make_unique<DenseMlp>(stage.mlps[0]);
  ExpertJoints joints;
  joints.dispatch = [routes](const Matrix& rows) {
    ExpertRows all = {rows, {}};
    for (int i = 0; i < rows.rows * kSlots; ++i) {
      const auto at = static_cast<size_t>(i);
      if (routes.ids[at] >= 0)
        all.entries.push_back({i / kSlots, routes.ids[at], routes.weights[at]});
    }
    return all;
  };
  joints.combine = Joints::Same;
  return std::make_unique<Mixture>(stage.mlps, std::move(joints));
}

}  // namespace cohort::testing
