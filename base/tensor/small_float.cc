#include "base/tensor/small_float.h"

#include <cmath>
#include <cstring>

namespace cohort {
namespace {

constexpr int kFloatFraction = 23;
constexpr int kFloatBias = 127;

// A sign bit, `exponent` bits, `fraction` bits. IEEE: the largest exponent is for infinities and
// NaNs. Otherwise it is for numbers, and only all ones is a NaN.
struct Format {
  int exponent;
  int fraction;
  bool ieee;
  bool saturates;

  constexpr int bias() const { return (1 << (exponent - 1)) - 1; }
  constexpr uint32_t sign() const { return uint32_t{1} << (exponent + fraction); }
  constexpr uint32_t all_ones() const { return sign() - 1; }
  constexpr uint32_t infinity() const { return ((uint32_t{1} << exponent) - 1) << fraction; }
  constexpr uint32_t largest() const { return ieee ? infinity() - 1 : all_ones() - 1; }
  constexpr uint32_t nan() const {
    return ieee ? infinity() | uint32_t{1} << (fraction - 1) : all_ones();
  }
};

constexpr Format kF16 = {5, 10, true, false};
constexpr Format kBF16 = {8, 7, true, false};
constexpr Format kE4M3 = {4, 3, false, true};
constexpr Format kE5M2 = {5, 2, true, true};

float Decode(const Format& format, uint32_t bits) {
  const bool negative = (bits & format.sign()) != 0;
  const uint32_t rest = bits & format.all_ones();
  const int exponent = static_cast<int>(rest >> format.fraction);
  const uint32_t fraction = rest & ((uint32_t{1} << format.fraction) - 1);
  float value;
  if (format.ieee ? rest > format.infinity() : rest == format.all_ones()) {
    value = std::nanf("");
  } else if (format.ieee && rest == format.infinity()) {
    value = INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), 1 - format.bias() - format.fraction);
  } else {
    value = std::ldexp(static_cast<float>(fraction | uint32_t{1} << format.fraction),
                       exponent - format.bias() - format.fraction);
  }
  return negative ? -value : value;
}

uint32_t Encode(const Format& format, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 31 != 0 ? format.sign() : 0;
  if (std::isnan(value)) return sign | format.nan();
  const uint32_t overflow = format.saturates ? format.largest() : format.infinity();
  if (std::isinf(value)) return sign | overflow;

  const int field = static_cast<int>(bits >> kFloatFraction & 0xFF);
  uint32_t significand = bits & ((uint32_t{1} << kFloatFraction) - 1);
  if (field != 0) significand |= uint32_t{1} << kFloatFraction;
  const int exponent = field == 0 ? 1 - kFloatBias : field - kFloatBias;
  const int smallest = 1 - format.bias();
  // Below the smallest exponent, the fraction loses more bits.
  const int lost =
      kFloatFraction - format.fraction + (exponent < smallest ? smallest - exponent : 0);
  if (lost > kFloatFraction + 2) return sign;
  uint32_t kept = significand >> lost;
  if (lost > 0) {
    const uint32_t rest = significand & ((uint32_t{1} << lost) - 1);
    const uint32_t half = uint32_t{1} << (lost - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  }
  // The leading one of a normal number counts as one in the exponent's field; so does a carry.
  const uint32_t result =
      exponent < smallest
          ? kept
          : (static_cast<uint32_t>(exponent + format.bias() - 1) << format.fraction) + kept;
  return sign | (result > format.largest() ? overflow : result);
}

}  // namespace

float FloatFromF16(uint16_t bits) { return Decode(kF16, bits); }
float FloatFromBF16(uint16_t bits) { return Decode(kBF16, bits); }
float FloatFromF8E4M3(uint8_t bits) { return Decode(kE4M3, bits); }
float FloatFromF8E5M2(uint8_t bits) { return Decode(kE5M2, bits); }

uint16_t F16FromFloat(float value) { return static_cast<uint16_t>(Encode(kF16, value)); }
uint16_t BF16FromFloat(float value) { return static_cast<uint16_t>(Encode(kBF16, value)); }
uint8_t F8E4M3FromFloat(float value) { return static_cast<uint8_t>(Encode(kE4M3, value)); }
uint8_t F8E5M2FromFloat(float value) { return static_cast<uint8_t>(Encode(kE5M2, value)); }

}  // namespace cohort
