#include "client/parallel/layout/role.h"

#include "absl/strings/str_cat.h"

namespace cohort::parallel {

absl::string_view NameOf(Role role) {
  switch (role) {
    case Role::kUnspecified:
      return "unspecified";
    case Role::kWorld:
      return "world";
    case Role::kInnerWorld:
      return "inner-world";
    case Role::kTensor:
      return "tensor";
    case Role::kPipeline:
      return "pipeline";
    case Role::kData:
      return "data";
    case Role::kContext:
      return "context";
    case Role::kDecodeContext:
      return "decode-context";
    case Role::kExpert:
      return "expert";
    case Role::kExpertLoadBalancing:
      return "expert-load-balancing";
    case Role::kModel:
      return "model";
    case Role::kSequence:
      return "sequence";
    case Role::kSequenceData:
      return "sequence-data";
    case Role::kDataContext:
      return "data-context";
    case Role::kTensorData:
      return "tensor-data";
    case Role::kTensorDataContext:
      return "tensor-data-context";
    case Role::kTensorContext:
      return "tensor-context";
    case Role::kExpertTensor:
      return "expert-tensor";
    case Role::kExpertTensorAll:
      return "expert-tensor-all";
    case Role::kExpertModel:
      return "expert-model";
    case Role::kExpertData:
      return "expert-data";
    case Role::kEmbedding:
      return "embedding";
    case Role::kPositionEmbedding:
      return "position-embedding";
    case Role::kPartialData:
      return "partial-data";
    case Role::kPartialExpertData:
      return "partial-expert-data";
    case Role::kBetweenInstances:
      return "between-instances";
    case Role::kOptimizerInstance:
      return "optimizer-instance";
    case Role::kContextLevel:
      return "context-level";
    case Role::kHybridDataContext:
      return "hybrid-data-context";
    case Role::kTensor1d:
      return "tensor-1d";
    case Role::kTensor2dRow:
      return "tensor-2d-row";
    case Role::kTensor2dColumn:
      return "tensor-2d-column";
    case Role::kTensor2p5dRow:
      return "tensor-2.5d-row";
    case Role::kTensor2p5dColumn:
      return "tensor-2.5d-column";
    case Role::kTensor2p5dDepth:
      return "tensor-2.5d-depth";
    case Role::kTensor2p5dXZ:
      return "tensor-2.5d-xz";
    case Role::kTensor3dInput:
      return "tensor-3d-input";
    case Role::kTensor3dWeight:
      return "tensor-3d-weight";
    case Role::kTensor3dOutput:
      return "tensor-3d-output";
    case Role::kTensor3dInputXWeight:
      return "tensor-3d-input-x-weight";
    case Role::kTensor3dOutputXWeight:
      return "tensor-3d-output-x-weight";
  }
  return "unknown";
}

Role RoleOf(ParallelMode mode) {
  switch (mode) {
    case ParallelMode::kGlobal:
      return Role::kWorld;
    case ParallelMode::kData:
      return Role::kData;
    case ParallelMode::kModel:
      return Role::kModel;
    case ParallelMode::kPipeline:
      return Role::kPipeline;
    case ParallelMode::kTensor:
      return Role::kTensor;
    case ParallelMode::kSequence:
      return Role::kSequence;
    case ParallelMode::kSequenceDp:
      return Role::kSequenceData;
    case ParallelMode::k1D:
      return Role::kTensor1d;
    case ParallelMode::k2DRow:
      return Role::kTensor2dRow;
    case ParallelMode::k2DCol:
      return Role::kTensor2dColumn;
    case ParallelMode::k2P5DRow:
      return Role::kTensor2p5dRow;
    case ParallelMode::k2P5DCol:
      return Role::kTensor2p5dColumn;
    case ParallelMode::k2P5DDep:
      return Role::kTensor2p5dDepth;
    case ParallelMode::k2P5DXZ:
      return Role::kTensor2p5dXZ;
    case ParallelMode::k3DInput:
      return Role::kTensor3dInput;
    case ParallelMode::k3DWeight:
      return Role::kTensor3dWeight;
    case ParallelMode::k3DOutput:
      return Role::kTensor3dOutput;
    case ParallelMode::k3DInputXWeight:
      return Role::kTensor3dInputXWeight;
    case ParallelMode::k3DOutputXWeight:
      return Role::kTensor3dOutputXWeight;
    case ParallelMode::kMoeData:
      return Role::kExpertData;
    case ParallelMode::kMoeModel:
      return Role::kExpert;
  }
  return Role::kUnspecified;
}

std::string NameOf(const GroupKind& kind) {
  if (kind.level == 0) return std::string(NameOf(kind.role));
  return absl::StrCat(NameOf(kind.role), "-", kind.level);
}

}  // namespace cohort::parallel
