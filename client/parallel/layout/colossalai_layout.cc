#include "client/parallel/layout/colossalai_layout.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

struct TensorShape {
  int x = 1;
  int y = 1;
  int z = 1;
};

// q with q * q * (depth, or q) == tensor.
absl::StatusOr<TensorShape> Cut(const ColossalaiSizes& sizes) {
  const int tensor = sizes.tensor;
  const bool cube = sizes.mode == TensorMode::k3D;
  const int depth = sizes.mode == TensorMode::k2P5D ? sizes.depth : 1;
  if (depth < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the depth ", depth, " is below 1"));
  }
  for (int64_t q = 1; q * q <= tensor; ++q) {
    const int64_t ranks = q * q * (cube ? q : depth);
    if (ranks != tensor) continue;
    const int side = static_cast<int>(q);
    return TensorShape{side, side, cube ? side : depth};
  }
  if (cube) return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, " is no cube"));
  if (sizes.mode == TensorMode::k2D) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, " is no square"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", tensor, " is no square times the depth ", depth));
}

absl::StatusOr<TensorShape> ShapeOf(const ColossalaiSizes& sizes) {
  if (sizes.tensor < 1) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", sizes.tensor, " is below 1"));
  }
  if (sizes.mode != TensorMode::k2P5D && sizes.depth != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the depth ", sizes.depth, " is given for a mode that is not 2.5D"));
  }
  switch (sizes.mode) {
    case TensorMode::kNone:
      if (sizes.tensor == 1) return TensorShape();
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", sizes.tensor, " is given without a tensor mode"));
    case TensorMode::k1D:
    case TensorMode::kSequence:
      return TensorShape{sizes.tensor};
    case TensorMode::k2D:
    case TensorMode::k2P5D:
    case TensorMode::k3D:
      return Cut(sizes);
  }
  return absl::InvalidArgumentError("no such tensor mode");
}

struct ModeFamily {
  Role role;
  std::vector<Axis> axes;
};

std::vector<ModeFamily> FamiliesOf(TensorMode mode) {
  const Axis x = Axis::kTensorX;
  const Axis y = Axis::kTensorY;
  const Axis z = Axis::kTensorZ;
  switch (mode) {
    case TensorMode::kNone:
      return {};
    case TensorMode::k1D:
      return {{Role::kTensor1d, {x, y, z}}};
    case TensorMode::k2D:
      return {{Role::kTensor2dRow, {x}}, {Role::kTensor2dColumn, {y}}};
    case TensorMode::k2P5D:
      return {{Role::kTensor2p5dRow, {x}},
              {Role::kTensor2p5dColumn, {y}},
              {Role::kTensor2p5dDepth, {z}},
              {Role::kTensor2p5dXZ, {y, z}}};
    case TensorMode::k3D:
      return {{Role::kTensor3dInput, {y}},
              {Role::kTensor3dWeight, {x}},
              {Role::kTensor3dOutput, {z}},
              {Role::kTensor3dInputXWeight, {x, y}},
              {Role::kTensor3dOutputXWeight, {x, z}}};
    case TensorMode::kSequence:
      return {{Role::kSequence, {x, y, z}},
              {Role::kSequenceData, {x, y, z, Axis::kExpert, Axis::kData}}};
  }
  return {};
}

}  // namespace

absl::StatusOr<Layout> ColossalaiLayout(int world_size, const ColossalaiSizes& sizes) {
  COHORT_ASSIGN_OR_RETURN(const TensorShape tensor, ShapeOf(sizes));
  COHORT_ASSIGN_OR_RETURN(
      const int all_data,
      SizeInWorld(world_size, Axis::kData, sizes.data,
                  {{Axis::kTensor, sizes.tensor}, {Axis::kPipeline, sizes.pipeline}}, ""));
  COHORT_ASSIGN_OR_RETURN(const int data,
                          Divide("data in runs of experts", all_data, sizes.expert));
  COHORT_ASSIGN_OR_RETURN(Grid grid, Grid::Create(world_size,
                                                  {{Axis::kTensorX, tensor.x},
                                                   {Axis::kTensorY, tensor.y},
                                                   {Axis::kTensorZ, tensor.z},
                                                   {Axis::kPipeline, sizes.pipeline},
                                                   {Axis::kExpert, sizes.expert},
                                                   {Axis::kData, data}},
                                                  {Axis::kTensorX, Axis::kTensorY, Axis::kTensorZ,
                                                   Axis::kPipeline, Axis::kExpert, Axis::kData}));
  const std::vector<Axis> all_tensor = {Axis::kTensorX, Axis::kTensorY, Axis::kTensorZ};
  Layout layout(std::move(grid));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kWorld, layout.grid().order()));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kTensor, all_tensor));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kPipeline, {Axis::kPipeline}));
  COHORT_RETURN_IF_ERROR(
      layout.Add(Role::kModel, {Axis::kTensorX, Axis::kTensorY, Axis::kTensorZ, Axis::kPipeline}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kData, {Axis::kExpert, Axis::kData}));
  for (const ModeFamily& family : FamiliesOf(sizes.mode)) {
    COHORT_RETURN_IF_ERROR(layout.Add(family.role, family.axes));
  }
  if (sizes.expert == 1) return layout;
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kExpert, {Axis::kExpert}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kExpertData, {Axis::kData}));
  return layout;
}

}  // namespace cohort::parallel
