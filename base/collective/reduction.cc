#include "base/collective/reduction.h"

#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

// By value, from 1.
constexpr absl::string_view kNames[] = {"sum",         "prod",    "min",    "max",    "avg",
                                        "pre_mul_sum", "bit_and", "bit_or", "bit_xor"};

bool IsReducible(DataType type, ReduceOp op) {
  if (IsComplex(type) || IsOpaque(type)) return false;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return true;
    case ReduceOp::kAvg:
      return type != DataType::kBool;
    case ReduceOp::kPreMulSum:
      return IsFloating(type);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return !IsFloating(type);
  }
  return false;
}

}  // namespace

absl::string_view NameOf(ReduceOp op) {
  return IsReduceOp(static_cast<int>(op)) ? kNames[static_cast<int>(op) - 1] : "no reduction";
}

std::optional<ReduceOp> FindReduceOp(absl::string_view name) {
  for (const ReduceOp op : kReduceOps) {
    if (NameOf(op) == name) return op;
  }
  return std::nullopt;
}

bool IsReduceOp(int value) { return value >= 1 && value <= static_cast<int>(kReduceOps.size()); }

absl::Status CheckReducible(DataType type, ReduceOp op) {
  if (IsReducible(type, op)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("elements of ", NameOf(type), " cannot be reduced by ", NameOf(op)));
}

}  // namespace cohort
