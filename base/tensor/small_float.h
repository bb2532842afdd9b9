// Converts floating-point numbers of 16 and 8 bits, one at a time. Reductions round with these
// functions, and tests compare with them. Conversions to float are exact. Those from float round
// once, to nearest, ties to even. NaNs become one quiet NaN of their sign.
#ifndef COHORT_BASE_TENSOR_SMALL_FLOAT_H_
#define COHORT_BASE_TENSOR_SMALL_FLOAT_H_

#include <cstdint>

namespace cohort {

float FloatFromF16(uint16_t bits);
float FloatFromBF16(uint16_t bits);
float FloatFromF8E4M3(uint8_t bits);
float FloatFromF8E5M2(uint8_t bits);

// A value that is too large becomes infinite.
uint16_t F16FromFloat(float value);
uint16_t BF16FromFloat(float value);
// A value that is too large, and an infinity, becomes the largest finite number. Hardware converts
// to these types like this in "satfinite" mode.
uint8_t F8E4M3FromFloat(float value);
uint8_t F8E5M2FromFloat(float value);

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_SMALL_FLOAT_H_
