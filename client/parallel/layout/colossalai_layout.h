// The groups of ColossalAI's process group initializers.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_COLOSSALAI_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_COLOSSALAI_LAYOUT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "client/parallel/layout/layout.h"

namespace cohort::parallel {

enum class TensorMode { kNone, k1D, k2D, k2P5D, k3D, kSequence };

struct ColossalaiSizes {
  int tensor = 1;
  int pipeline = 1;
  std::optional<int> data;  // absent: world_size / (tensor * pipeline)
  TensorMode mode = TensorMode::kNone;
  int depth = 1;  // for k2P5D alone
  // Above 1: the data axis is cut into runs of this length, whose ranks hold different experts.
  int expert = 1;
};

// rank = (d * pipeline + p) * tensor + t. Kinds: kWorld, kTensor, kPipeline, kModel, kData, and
//   k1D        kTensor1d, as kTensor
//   k2D        t = x + q * y, tensor = q * q: kTensor2dRow over x, kTensor2dColumn over y
//   k2P5D      t = x + q * (y + q * z), tensor = q * q * depth: kTensor2p5dRow over x, ...Column
//              over y, ...Depth over z, ...XZ over y, then z
//   k3D        the same numbers, tensor = q * q * q: kTensor3dInput over y, ...Weight over x,
//              ...Output over z, ...InputXWeight over x, then y, ...OutputXWeight over x, then z
//   kSequence  kSequence, as kTensor; kSequenceData, all ranks of one pipeline stage (the original
//              takes neighbours, which mixes stages when there are several of them and of data)
//   expert > 1 kExpert, runs of the data axis; kExpertData, ranks that hold the same experts
// ParallelMode gives each its name in ColossalAI.
//
// Errors: those of Grid::Create; INVALID_ARGUMENT with the numbers (the world is no multiple of
// tensor * pipeline, or not their product with data; tensor is no square, no q * q * depth, no
// cube; above 1 with kNone; depth with another mode; data is no multiple of expert).
// Source: ParallelContext.init_parallel_groups, whose checks of 2.5D and 3D never run.
absl::StatusOr<Layout> ColossalaiLayout(int world_size, const ColossalaiSizes& sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_COLOSSALAI_LAYOUT_H_
