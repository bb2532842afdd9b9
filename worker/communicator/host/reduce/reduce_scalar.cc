#include "worker/communicator/host/reduce/reduce_scalar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/tensor/small_float.h"

namespace cohort::worker {
namespace {

// The elements of a block; its sums stay in the first-level cache.
constexpr int64_t kBlock = 512;

template <float (*decode)(uint8_t)>
const std::array<float, 256>& Table() {
  static const std::array<float, 256>* const table = [] {
    auto* filled = new std::array<float, 256>;
    for (int i = 0; i < 256; ++i)
      (*filled)[static_cast<size_t>(i)] = decode(static_cast<uint8_t>(i));
    return filled;
  }();
  return *table;
}

// Formats: how an element is read into the type of its sum, and written from it.
template <typename T>
struct Plain {
  using Element = T;
  // Unsigned arithmetic wraps where that of signed numbers is undefined.
  using Sum = std::make_unsigned_t<T>;
  static Sum Read(T value) { return static_cast<Sum>(value); }
  static T Write(Sum sum) { return static_cast<T>(sum); }
};
template <>
struct Plain<double> {
  using Element = double;
  using Sum = double;
  static double Read(double value) { return value; }
  static double Write(double sum) { return sum; }
};
struct F16 {
  using Element = uint16_t;
  using Sum = float;
  static float Read(uint16_t bits) { return FloatFromF16(bits); }
  static uint16_t Write(float sum) { return F16FromFloat(sum); }
};
struct E4M3 {
  using Element = uint8_t;
  using Sum = float;
  static float Read(uint8_t bits) { return Table<FloatFromF8E4M3>()[bits]; }
  static uint8_t Write(float sum) { return F8E4M3FromFloat(sum); }
};
struct E5M2 {
  using Element = uint8_t;
  using Sum = float;
  static float Read(uint8_t bits) { return Table<FloatFromF8E5M2>()[bits]; }
  static uint8_t Write(float sum) { return F8E5M2FromFloat(sum); }
};
struct Bool {
  using Element = uint8_t;
  using Sum = uint8_t;
  static uint8_t Read(uint8_t value) { return value != 0 ? 1 : 0; }
  static uint8_t Write(uint8_t sum) { return sum; }
};

template <typename Format, typename Op, typename Last>
void ReduceBlocks(const Operands& operands, const Op& op, const Last& last) {
  using Element = typename Format::Element;
  using Sum = typename Format::Sum;
  Sum sums[kBlock];
  Element result[kBlock];
  for (int64_t at = 0; at < operands.count; at += kBlock) {
    const int64_t size = std::min(kBlock, operands.count - at);
    for (size_t k = 0; k < operands.inputs.size(); ++k) {
      Element values[kBlock];  // unaligned elements cannot be read in place
      std::memcpy(values, static_cast<const Element*>(operands.inputs[k]) + at,
                  static_cast<size_t>(size) * sizeof(Element));
      for (int64_t i = 0; i < size; ++i) {
        const Sum value = Format::Read(values[i]);
        sums[i] = k == 0 ? op.First(value) : op.Next(sums[i], value);
      }
    }
    for (int64_t i = 0; i < size; ++i) result[i] = Format::Write(last(sums[i]));
    for (void* const output : operands.outputs) {
      std::memcpy(static_cast<Element*>(output) + at, result,
                  static_cast<size_t>(size) * sizeof(Element));
    }
  }
}

struct Itself {
  template <typename T>
  T operator()(T value) const {
    return value;
  }
};

template <typename F>
struct Pairwise {
  F next;
  template <typename T>
  T First(T value) const {
    return value;
  }
  template <typename T>
  T Next(T sum, T value) const {
    return next(sum, value);
  }
};
template <typename F>
Pairwise(F) -> Pairwise<F>;

// The integers' products would be computed as int, which may overflow.
template <typename T>
T Times(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
}
template <typename T>
bool IsNan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

constexpr auto kAdd = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };
constexpr auto kTimes = [](auto a, auto b) { return Times(a, b); };
constexpr auto kSmaller = [](auto a, auto b) { return IsNan(a) || !(b < a || IsNan(b)) ? a : b; };
constexpr auto kLarger = [](auto a, auto b) { return IsNan(a) || !(a < b || IsNan(b)) ? a : b; };

template <typename T>
struct ScaledSum {
  T scale;
  T First(T value) const { return Scaled(value); }
  T Next(T sum, T value) const { return sum + Scaled(value); }

 private:
  T Scaled(T value) const {
    const T product = scale * value;
    return product;
  }
};

template <typename Format>
void ReduceFloats(const Reduction& reduction, const Operands& operands) {
  using Sum = typename Format::Sum;
  switch (reduction.op) {
    case ReduceOp::kSum:
      return ReduceBlocks<Format>(operands, Pairwise{kAdd}, Itself());
    case ReduceOp::kProd:
      return ReduceBlocks<Format>(operands, Pairwise{kTimes}, Itself());
    case ReduceOp::kMin:
      return ReduceBlocks<Format>(operands, Pairwise{kSmaller}, Itself());
    case ReduceOp::kMax:
      return ReduceBlocks<Format>(operands, Pairwise{kLarger}, Itself());
    case ReduceOp::kAvg: {
      const Sum ranks = static_cast<Sum>(operands.inputs.size());
      return ReduceBlocks<Format>(operands, Pairwise{kAdd},
                                  [ranks](Sum sum) { return sum / ranks; });
    }
    case ReduceOp::kPreMulSum:
      return ReduceBlocks<Format>(operands, ScaledSum<Sum>{static_cast<Sum>(reduction.scale)},
                                  Itself());
    default:
      return;
  }
}

template <typename T>
void ReduceIntegers(const Reduction& reduction, const Operands& operands) {
  using Sum = typename Plain<T>::Sum;
  if (reduction.op == ReduceOp::kProd) {
    return ReduceBlocks<Plain<T>>(operands, Pairwise{kTimes}, Itself());
  }
  const int64_t ranks = static_cast<int64_t>(operands.inputs.size());
  ReduceBlocks<Plain<T>>(operands, Pairwise{kAdd}, [ranks](Sum sum) {
    if constexpr (std::is_signed_v<T>) {
      return static_cast<Sum>(static_cast<int64_t>(static_cast<T>(sum)) / ranks);
    } else {
      return static_cast<Sum>(static_cast<uint64_t>(sum) / static_cast<uint64_t>(ranks));
    }
  });
}

void ReduceBools(ReduceOp op, const Operands& operands) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return ReduceBlocks<Bool>(operands, Pairwise{kLarger}, Itself());
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return ReduceBlocks<Bool>(operands, Pairwise{kSmaller}, Itself());
    default:
      return ReduceBlocks<Bool>(
          operands, Pairwise{[](auto a, auto b) { return static_cast<decltype(a)>(a ^ b); }},
          Itself());
  }
}

}  // namespace

void ReduceScalars(DataType type, const Reduction& reduction, const Operands& operands) {
  switch (type) {
    case DataType::kBool:
      return ReduceBools(reduction.op, operands);
    case DataType::kI8:
      return ReduceIntegers<int8_t>(reduction, operands);
    case DataType::kU8:
      return ReduceIntegers<uint8_t>(reduction, operands);
    case DataType::kI16:
      return ReduceIntegers<int16_t>(reduction, operands);
    case DataType::kU16:
      return ReduceIntegers<uint16_t>(reduction, operands);
    case DataType::kI32:
      return ReduceIntegers<int32_t>(reduction, operands);
    case DataType::kU32:
      return ReduceIntegers<uint32_t>(reduction, operands);
    case DataType::kI64:
      return ReduceIntegers<int64_t>(reduction, operands);
    case DataType::kU64:
      return ReduceIntegers<uint64_t>(reduction, operands);
    case DataType::kF64:
      return ReduceFloats<Plain<double>>(reduction, operands);
    case DataType::kF16:
      return ReduceFloats<F16>(reduction, operands);
    case DataType::kF8E4M3:
      return ReduceFloats<E4M3>(reduction, operands);
    case DataType::kF8E5M2:
      return ReduceFloats<E5M2>(reduction, operands);
    default:
      return;
  }
}

}  // namespace cohort::worker
