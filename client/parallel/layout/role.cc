#include "client/parallel/layout/role.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cohort::parallel {
namespace {

struct RoleName {
  Role key;
  absl::string_view name;
};

constexpr RoleName kRoleNames[] = {
    {Role::kUnspecified, "unspecified"},
    {Role::kWorld, "world"},
    {Role::kInnerWorld, "inner-world"},
    {Role::kTensor, "tensor"},
    {Role::kPipeline, "pipeline"},
    {Role::kData, "data"},
    {Role::kContext, "context"},
    {Role::kDecodeContext, "decode-context"},
    {Role::kExpert, "expert"},
    {Role::kExpertLoadBalancing, "expert-load-balancing"},
    {Role::kModel, "model"},
    {Role::kSequence, "sequence"},
    {Role::kSequenceData, "sequence-data"},
    {Role::kDataContext, "data-context"},
    {Role::kTensorData, "tensor-data"},
    {Role::kTensorDataContext, "tensor-data-context"},
    {Role::kTensorContext, "tensor-context"},
    {Role::kExpertTensor, "expert-tensor"},
    {Role::kExpertTensorAll, "expert-tensor-all"},
    {Role::kExpertModel, "expert-model"},
    {Role::kExpertData, "expert-data"},
    {Role::kEmbedding, "embedding"},
    {Role::kPositionEmbedding, "position-embedding"},
    {Role::kPartialData, "partial-data"},
    {Role::kPartialExpertData, "partial-expert-data"},
    {Role::kBetweenInstances, "between-instances"},
    {Role::kOptimizerInstance, "optimizer-instance"},
    {Role::kContextLevel, "context-level"},
    {Role::kHybridDataContext, "hybrid-data-context"},
    {Role::kTensor1d, "tensor-1d"},
    {Role::kTensor2dRow, "tensor-2d-row"},
    {Role::kTensor2dColumn, "tensor-2d-column"},
    {Role::kTensor2p5dRow, "tensor-2.5d-row"},
    {Role::kTensor2p5dColumn, "tensor-2.5d-column"},
    {Role::kTensor2p5dDepth, "tensor-2.5d-depth"},
    {Role::kTensor2p5dXZ, "tensor-2.5d-xz"},
    {Role::kTensor3dInput, "tensor-3d-input"},
    {Role::kTensor3dWeight, "tensor-3d-weight"},
    {Role::kTensor3dOutput, "tensor-3d-output"},
    {Role::kTensor3dInputXWeight, "tensor-3d-input-x-weight"},
    {Role::kTensor3dOutputXWeight, "tensor-3d-output-x-weight"},
};

struct ModeRole {
  ParallelMode key;
  Role role;
};

constexpr ModeRole kModeRoles[] = {
    {ParallelMode::kGlobal, Role::kWorld},
    {ParallelMode::kData, Role::kData},
    {ParallelMode::kModel, Role::kModel},
    {ParallelMode::kPipeline, Role::kPipeline},
    {ParallelMode::kTensor, Role::kTensor},
    {ParallelMode::kSequence, Role::kSequence},
    {ParallelMode::kSequenceDp, Role::kSequenceData},
    {ParallelMode::k1D, Role::kTensor1d},
    {ParallelMode::k2DRow, Role::kTensor2dRow},
    {ParallelMode::k2DCol, Role::kTensor2dColumn},
    {ParallelMode::k2P5DRow, Role::kTensor2p5dRow},
    {ParallelMode::k2P5DCol, Role::kTensor2p5dColumn},
    {ParallelMode::k2P5DDep, Role::kTensor2p5dDepth},
    {ParallelMode::k2P5DXZ, Role::kTensor2p5dXZ},
    {ParallelMode::k3DInput, Role::kTensor3dInput},
    {ParallelMode::k3DWeight, Role::kTensor3dWeight},
    {ParallelMode::k3DOutput, Role::kTensor3dOutput},
    {ParallelMode::k3DInputXWeight, Role::kTensor3dInputXWeight},
    {ParallelMode::k3DOutputXWeight, Role::kTensor3dOutputXWeight},
    {ParallelMode::kMoeData, Role::kExpertData},
    {ParallelMode::kMoeModel, Role::kExpert},
};

// Whether the table has a row for each value of the enum, up to `last`, in the order of the enum.
template <typename Row, size_t kSize, typename Enum>
constexpr bool IsComplete(const Row (&table)[kSize], Enum last) {
  for (size_t i = 0; i < kSize; ++i) {
    if (table[i].key != static_cast<Enum>(i)) return false;
  }
  return table[kSize - 1].key == last;
}
static_assert(IsComplete(kRoleNames, Role::kTensor3dOutputXWeight));
static_assert(IsComplete(kModeRoles, ParallelMode::kMoeModel));

}  // namespace

absl::string_view NameOf(Role role) {
  const auto index = static_cast<size_t>(role);
  return index < std::size(kRoleNames) ? kRoleNames[index].name : "unknown";
}

Role RoleOf(ParallelMode mode) {
  const auto index = static_cast<size_t>(mode);
  return index < std::size(kModeRoles) ? kModeRoles[index].role : Role::kUnspecified;
}

std::string NameOf(const GroupKind& kind) {
  if (kind.level == 0) return std::string(NameOf(kind.role));
  return absl::StrCat(NameOf(kind.role), "-", kind.level);
}

std::optional<GroupKind> FindGroupKind(absl::string_view name) {
  for (const RoleName& row : kRoleNames) {
    if (row.name == name) return GroupKind(row.key);
    // Another spelling of a level, such as 02, is another name.
    absl::string_view level = name;
    int number = 0;
    if (!absl::ConsumePrefix(&level, row.name) || !absl::ConsumePrefix(&level, "-")) continue;
    if (!absl::SimpleAtoi(level, &number) || number < 1) continue;
    const GroupKind kind(row.key, number);
    if (NameOf(kind) == name) return kind;
  }
  return std::nullopt;
}

}  // namespace cohort::parallel
