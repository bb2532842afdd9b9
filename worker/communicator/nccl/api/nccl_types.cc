#include "worker/communicator/nccl/api/nccl_types.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// NCCL's arithmetic of 8-bit floating types is compiled for these devices alone.
constexpr int kReducesF8 = 90;

// nullopt: NCCL has none.
std::optional<ncclDataType_t> NcclTypeOf(DataType type) {
  switch (type) {
    case DataType::kI8:
      return ncclInt8;
    case DataType::kU8:
      return ncclUint8;
    case DataType::kI32:
      return ncclInt32;
    case DataType::kU32:
      return ncclUint32;
    case DataType::kI64:
      return ncclInt64;
    case DataType::kU64:
      return ncclUint64;
    case DataType::kF16:
      return ncclFloat16;
    case DataType::kBF16:
      return ncclBfloat16;
    case DataType::kF32:
      return ncclFloat32;
    case DataType::kF64:
      return ncclFloat64;
    case DataType::kF8E4M3:
      return ncclFloat8e4m3;
    case DataType::kF8E5M2:
      return ncclFloat8e5m2;
    case DataType::kBool:
    case DataType::kI16:
    case DataType::kU16:
    case DataType::kC64:
    case DataType::kC128:
    case DataType::kF8E8M0:
    case DataType::kF8E4M3Fnuz:
    case DataType::kF8E5M2Fnuz:
    case DataType::kF4E2M1x2:
    case DataType::kF4E2M1:
    case DataType::kF6E2M3:
    case DataType::kF6E3M2:
      return std::nullopt;
  }
  return std::nullopt;
}

// nullopt: NCCL has none.
std::optional<ncclRedOp_t> NcclOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kProd:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kAvg:
      return ncclAvg;
    case ReduceOp::kPreMulSum:
      return ncclNumOps;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return std::nullopt;
  }
  return std::nullopt;
}

// As bytes without a sign, of which 0 is the least and the only false one: "any" is their largest,
// "all" their smallest.
std::optional<ncclRedOp_t> BoolOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return ncclMax;
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return ncclMin;
    default:
      return std::nullopt;
  }
}

}  // namespace

NcclElements ElementsToMove(DataType type) {
  if (const std::optional<ncclDataType_t> known = NcclTypeOf(type)) return {*known, 1};
  return {ncclUint8, SizeOf(type)};
}

absl::StatusOr<NcclReduction> ReductionFor(DataType type, ReduceOp op, int compute_capability,
                                           int ranks) {
  COHORT_RETURN_IF_ERROR(CheckReducible(type, op));
  const bool is_bool = type == DataType::kBool;
  const std::optional<ncclDataType_t> nccl_type = is_bool ? ncclUint8 : NcclTypeOf(type);
  const std::optional<ncclRedOp_t> nccl_op = is_bool ? BoolOpOf(op) : NcclOpOf(op);
  if (!nccl_type.has_value() || !nccl_op.has_value()) {
    return absl::UnimplementedError(absl::StrCat("NCCL cannot reduce ", NameOf(type), " by ",
                                                 NameOf(op), "; groups in host memory can"));
  }
  const bool is_f8 = type == DataType::kF8E4M3 || type == DataType::kF8E5M2;
  if (is_f8 && compute_capability < kReducesF8) {
    return absl::UnimplementedError(absl::StrCat(
        "NCCL reduces ", NameOf(type), " on devices of compute capability 9.0 and later; this is ",
        compute_capability / 10, ".", compute_capability % 10));
  }
  if (ranks == 1) {
    // NCCL scales all other types in a communicator of one rank.
    if (is_f8 && op == ReduceOp::kPreMulSum) {
      return absl::UnimplementedError(
          absl::StrCat("NCCL does not scale ", NameOf(type), " in a communicator of one rank"));
    }
    if (op == ReduceOp::kAvg) return NcclReduction{*nccl_type, ncclSum};
  }
  return NcclReduction{*nccl_type, *nccl_op};
}

}  // namespace cohort::worker
