// The purpose of a group. An enum, so that no part of a name decides the purpose.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_ROLE_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_ROLE_H_

#include <optional>
#include <string>
#include <tuple>

#include "absl/strings/string_view.h"

namespace cohort::parallel {

// The dimension over which the ranks of a group differ.
enum class Role {
  kUnspecified,
  kWorld,       // all
  kInnerWorld,  // one replica of the data: tensor, context and pipeline
  kTensor,
  kPipeline,
  kData,
  kContext,
  kDecodeContext,  // runs of the ranks of tensor and context that share the cache while decoding
  kExpert,
  kExpertLoadBalancing,  // as kExpert, in groups apart so that its traffic delays no other
  kModel,                // tensor and pipeline
  kSequence,             // the ranks of kTensor where they cut the sequence
  kSequenceData,         // tensor and data: all ranks of one pipeline stage

  kDataContext,
  kTensorData,
  kTensorDataContext,
  kTensorContext,
  kExpertTensor,       // tensor, as the experts' layers are cut
  kExpertTensorAll,    // of those layers: tensor and expert
  kExpertModel,        // tensor, expert and pipeline
  kExpertData,         // who has the same experts
  kEmbedding,          // the stages of a pipeline that hold token embeddings
  kPositionEmbedding,  // those that hold position embeddings
  kPartialData,        // data and context within one instance of the distributed optimizer
  kPartialExpertData,  // kExpertData within one instance
  kBetweenInstances,   // the ranks at the same place of all instances
  kOptimizerInstance,  // all ranks of one instance
  kContextLevel,       // a level of hierarchical context, from 1 on, innermost first
  kHybridDataContext,  // runs of 2^level ranks of kDataContext

  kTensor1d,
  kTensor2dRow,
  kTensor2dColumn,
  kTensor2p5dRow,
  kTensor2p5dColumn,
  kTensor2p5dDepth,
  kTensor2p5dXZ,
  kTensor3dInput,
  kTensor3dWeight,
  kTensor3dOutput,
  kTensor3dInputXWeight,
  kTensor3dOutputXWeight,
};

// Such as "tensor", "expert-data".
absl::string_view NameOf(Role role);

// ColossalAI's names.
enum class ParallelMode {
  kGlobal,
  kData,
  kModel,
  kPipeline,
  kTensor,
  kSequence,
  kSequenceDp,
  k1D,
  k2DRow,
  k2DCol,
  k2P5DRow,
  k2P5DCol,
  k2P5DDep,
  k2P5DXZ,
  k3DInput,
  k3DWeight,
  k3DOutput,
  k3DInputXWeight,
  k3DOutputXWeight,
  kMoeData,
  kMoeModel,
};

Role RoleOf(ParallelMode mode);

// A role, and its level where it has several.
struct GroupKind {
  GroupKind(Role role, int level = 0) : role(role), level(level) {}  // NOLINT: reads as a role
  GroupKind(ParallelMode mode) : role(RoleOf(mode)) {}               // NOLINT: reads as a mode

  Role role;
  int level = 0;

  friend bool operator==(const GroupKind& a, const GroupKind& b) {
    return a.role == b.role && a.level == b.level;
  }
  friend bool operator<(const GroupKind& a, const GroupKind& b) {
    return std::tie(a.role, a.level) < std::tie(b.role, b.level);
  }
};

// Such as "tensor", "context-level-2".
std::string NameOf(const GroupKind& kind);
// The kind of that name, or nothing.
std::optional<GroupKind> FindGroupKind(absl::string_view name);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_ROLE_H_
