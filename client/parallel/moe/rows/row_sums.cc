#include "client/parallel/moe/rows/row_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "base/tensor/small_float.h"

namespace cohort::parallel {
namespace {

// It sums so many numbers of a row at a time: the sums stay in the nearest cache, and loops of a
// constant length become vector instructions.
constexpr int64_t kLane = 64;

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rows are read many times and written once. So it is the loads that compilers can turn into vector
// instructions; NaNs stay NaNs.
struct BF16 {
  using Element = uint16_t;
  using Sum = float;
  static float Load(uint16_t bits) { return FloatOf(uint32_t{bits} << 16); }
  static uint16_t Store(float value) { return BF16FromFloat(value); }
};

struct F16 {
  using Element = uint16_t;
  using Sum = float;
  static float Load(uint16_t bits) {
    // The exponent's bias differs by 112; infinities and NaNs are restored.
    const float scaled = FloatOf((bits & 0x7fffu) << 13) * 0x1p112f;
    uint32_t result;
    std::memcpy(&result, &scaled, sizeof result);
    result |= (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return FloatOf(result | (bits & 0x8000u) << 16);
  }
  static uint16_t Store(float value) { return F16FromFloat(value); }
};

struct F8E4M3 {
  using Element = uint8_t;
  using Sum = float;
  static float Load(uint8_t bits) { return FloatFromF8E4M3(bits); }
  static uint8_t Store(float value) { return F8E4M3FromFloat(value); }
};

struct F8E5M2 {
  using Element = uint8_t;
  using Sum = float;
  static float Load(uint8_t bits) { return FloatFromF8E5M2(bits); }
  static uint8_t Store(float value) { return F8E5M2FromFloat(value); }
};

template <typename Number>
struct Plain {
  using Element = Number;
  using Sum = Number;
  static Number Load(Number value) { return value; }
  static Number Store(Number value) { return value; }
};

template <typename Format>
void AddLane(const typename Format::Element* from, typename Format::Sum weight, int64_t count,
             typename Format::Sum* sum) {
  if (count == kLane) {
    for (int64_t i = 0; i < kLane; ++i) sum[i] += weight * Format::Load(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) sum[i] += weight * Format::Load(from[i]);
  }
}

template <typename Format>
void SumAs(const Tensor& from, const RowTerms& terms, const Tensor& to) {
  using Element = typename Format::Element;
  using Sum = typename Format::Sum;
  const auto* const in = static_cast<const Element*>(from.data());
  auto* out = static_cast<Element*>(to.data());
  const int64_t sums = to.shape()[0];
  const int64_t row = to.count() / sums;
  for (int64_t i = 0; i < sums; ++i, out += row) {
    const int64_t begin = terms.begins[static_cast<size_t>(i)];
    const int64_t end = terms.begins[static_cast<size_t>(i) + 1];
    for (int64_t column = 0; column < row; column += kLane) {
      const int64_t count = std::min(kLane, row - column);
      Sum sum[kLane] = {};
      for (int64_t term = begin; term < end; ++term) {
        const auto at = static_cast<size_t>(term);
        const Sum weight = terms.weights.empty() ? Sum{1} : Sum{terms.weights[at]};
        AddLane<Format>(in + terms.rows[at] * row + column, weight, count, sum);
      }
      for (int64_t j = 0; j < count; ++j) out[column + j] = Format::Store(sum[j]);
    }
  }
}

}  // namespace

RowTerms TermsOf(const std::vector<int64_t>& sums, int64_t count,
                 const std::vector<float>& weights) {
  RowTerms terms;
  terms.begins.resize(static_cast<size_t>(count) + 1, 0);
  terms.rows.resize(sums.size());
  terms.weights.resize(weights.size());
  for (const int64_t sum : sums) ++terms.begins[static_cast<size_t>(sum) + 1];
  std::partial_sum(terms.begins.begin(), terms.begins.end(), terms.begins.begin());
  std::vector<int64_t> next(terms.begins.begin(), terms.begins.end() - 1);
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto at = static_cast<size_t>(next[static_cast<size_t>(sums[i])]++);
    terms.rows[at] = static_cast<int64_t>(i);
    if (!weights.empty()) terms.weights[at] = weights[i];
  }
  return terms;
}

void SumRows(const Tensor& from, const RowTerms& terms, const Tensor& to) {
  if (to.count() == 0) return;
  switch (to.type()) {
    case DataType::kF16:
      return SumAs<F16>(from, terms, to);
    case DataType::kBF16:
      return SumAs<BF16>(from, terms, to);
    case DataType::kF32:
      return SumAs<Plain<float>>(from, terms, to);
    case DataType::kF64:
      return SumAs<Plain<double>>(from, terms, to);
    case DataType::kF8E4M3:
      return SumAs<F8E4M3>(from, terms, to);
    case DataType::kF8E5M2:
      return SumAs<F8E5M2>(from, terms, to);
    default:
      return;  // callers have checked it
  }
}

}  // namespace cohort::parallel
