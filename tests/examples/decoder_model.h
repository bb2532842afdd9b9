// Decoder layers in a row, for several sequences, computed as a whole: the expected results of
// ranks that share the work.
#ifndef COHORT_TESTS_EXAMPLES_DECODER_MODEL_H_
#define COHORT_TESTS_EXAMPLES_DECODER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/examples/decoder_layer.h"
#include "tests/examples/feed_forward.h"
#include "tests/examples/matrix.h"

namespace cohort::testing {

inline constexpr int kSequence = 8;
inline constexpr int kHead = 3;
inline constexpr int kHidden = 4 * kHead;
inline constexpr int kInner = 16;
inline constexpr int kExperts = 4;
inline constexpr int kSlots = 2;  // experts of a token

// The experts that a router chose, by token and slot; -1: none.
struct Routes {
  Routes(int tokens, std::mt19937& random);

  std::vector<int32_t> ids;
  std::vector<float> weights;
};

struct DecoderModel {
  DecoderModel(int replica_count, int stage_count, bool mixture, std::mt19937& random);

  struct Stage {
    AttentionWeights attention;
    std::vector<MlpWeights> mlps;  // experts, or one
  };
  // One sequence and its results.
  struct Replica {
    Routes routes;
    std::vector<Matrix> outputs;    // of each stage; in front of them the input
    std::vector<Matrix> gradients;  // of these
    std::vector<DecoderLayer> layers;
  };
  const bool mixture;
  std::vector<Stage> stages;
  std::vector<Replica> replicas;

 private:
  std::unique_ptr<FeedForward> FeedForwardOf(const Stage& stage, const Routes& routes) const;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_EXAMPLES_DECODER_MODEL_H_
