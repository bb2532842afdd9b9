// How a collective reduces the elements of all ranks to one.
#ifndef COHORT_BASE_COLLECTIVE_REDUCTION_H_
#define COHORT_BASE_COLLECTIVE_REDUCTION_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/tensor/data_type.h"

namespace cohort {

// The values travel between processes: they do not change.
enum class ReduceOp : uint8_t {
  kSum = 1,        // integers wrap
  kProd = 2,       // integers wrap
  kMin = 3,        // a NaN on any rank is the result
  kMax = 4,        // a NaN on any rank is the result
  kAvg = 5,        // the sum divided by the number of ranks; integers are rounded towards zero
  kPreMulSum = 6,  // the sum of the elements, each multiplied by `scale` first
  kBitAnd = 7,
  kBitOr = 8,
  kBitXor = 9,
};

inline constexpr std::array<ReduceOp, 9> kReduceOps = {
    ReduceOp::kSum,       ReduceOp::kProd,   ReduceOp::kMin,   ReduceOp::kMax,   ReduceOp::kAvg,
    ReduceOp::kPreMulSum, ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor};

struct Reduction {
  constexpr Reduction(ReduceOp op = ReduceOp::kSum,
                      double scale = 1)  // NOLINT: an operation is a reduction
      : op(op), scale(scale) {}
  // Callers make a reduction for each call. The processor does not forward two fresh stores to one
  // wide load, so each field is copied by itself.
  constexpr Reduction(const Reduction& other) : op(other.op), scale(other.scale) {}
  Reduction& operator=(const Reduction& other) {
    op = other.op;
    scale = other.scale;
    return *this;
  }

  ReduceOp op;
  double scale;  // for kPreMulSum
};

// "sum", "pre_mul_sum", "bit_and", ...; "no reduction" for a number that is not a ReduceOp.
absl::string_view NameOf(ReduceOp op);
std::optional<ReduceOp> FindReduceOp(absl::string_view name);
// Whether a number from another process or program is a ReduceOp.
bool IsReduceOp(int value);

// Whether `op` can reduce elements of `type`. For bool, sum, max and bit_or are "any"; prod, min
// and bit_and are "all"; bit_xor is "an odd number". Errors: INVALID_ARGUMENT (complex numbers,
// bitwise operations on floating-point numbers, a scale for integers and bool, the average of bool;
// names both).
absl::Status CheckReducible(DataType type, ReduceOp op);

}  // namespace cohort

#endif  // COHORT_BASE_COLLECTIVE_REDUCTION_H_
