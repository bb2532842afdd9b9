#include "base/tensor/small_float.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace cohort {
namespace {

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Every number of a type comes back as itself, and a number between two goes to the nearer one.
template <typename Bits>
void CheckType(float (*decode)(Bits), Bits (*encode)(float), int count) {
  float before = 0;
  Bits before_bits = 0;
  for (int i = 0; i < count; ++i) {
    const Bits bits = static_cast<Bits>(i);
    const float value = decode(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(decode(encode(value)))) << i;
      continue;
    }
    if (std::isinf(value)) continue;
    ASSERT_EQ(encode(value), bits) << i;
    if (i > 0 && i < count / 2) {
      const float middle = before + (value - before) / 2;  // exact: one bit more
      const Bits even = (bits & 1) == 0 ? bits : before_bits;
      ASSERT_EQ(encode(middle), even) << i;
      ASSERT_EQ(encode(std::nextafter(middle, before)), before_bits) << i;
      ASSERT_EQ(encode(std::nextafter(middle, value)), bits) << i;
    }
    before = value;
    before_bits = bits;
  }
}

TEST(SmallFloatTest, F16) { CheckType<uint16_t>(FloatFromF16, F16FromFloat, 0x10000); }
TEST(SmallFloatTest, BF16) { CheckType<uint16_t>(FloatFromBF16, BF16FromFloat, 0x10000); }
TEST(SmallFloatTest, F8E4M3) { CheckType<uint8_t>(FloatFromF8E4M3, F8E4M3FromFloat, 0x100); }
TEST(SmallFloatTest, F8E5M2) { CheckType<uint8_t>(FloatFromF8E5M2, F8E5M2FromFloat, 0x100); }

TEST(SmallFloatTest, KnownNumbers) {
  EXPECT_EQ(FloatFromF16(0x3C00), 1.0f);
  EXPECT_EQ(FloatFromF16(0x7BFF), 65504.0f);
  EXPECT_EQ(FloatFromBF16(0xC000), -2.0f);
  EXPECT_EQ(FloatFromF8E4M3(0x7E), 448.0f);
  EXPECT_EQ(FloatFromF8E4M3(0x01), 0x1p-9f);
  EXPECT_EQ(FloatFromF8E5M2(0x7B), 57344.0f);
  EXPECT_EQ(FloatFromF8E5M2(0x01), 0x1p-16f);
  EXPECT_TRUE(std::isnan(FloatFromF8E4M3(0x7F)));
  EXPECT_TRUE(std::isinf(FloatFromF8E5M2(0x7C)));
}

TEST(SmallFloatTest, NumbersThatAreTooLarge) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(F16FromFloat(65519.9f), 0x7BFF);
  EXPECT_EQ(F16FromFloat(65520.0f), 0x7C00);
  EXPECT_EQ(BF16FromFloat(std::numeric_limits<float>::max()), 0x7F80);
  for (const float large : {465.0f, 1e30f, infinity}) {
    EXPECT_EQ(F8E4M3FromFloat(large), 0x7E) << large;
    EXPECT_EQ(F8E4M3FromFloat(-large), 0xFE) << large;
  }
  for (const float large : {61440.0f, 1e30f, infinity}) {
    EXPECT_EQ(F8E5M2FromFloat(large), 0x7B) << large;
    EXPECT_EQ(F8E5M2FromFloat(-large), 0xFB) << large;
  }
}

TEST(SmallFloatTest, ZerosAndTheSmallestKeepTheirSign) {
  EXPECT_EQ(F16FromFloat(-0.0f), 0x8000);
  EXPECT_EQ(BF16FromFloat(FromBits(0x80000001)), 0x8000);
  EXPECT_EQ(F8E4M3FromFloat(-0x1p-11f), 0x80);
  EXPECT_EQ(F8E4M3FromFloat(0x1.8p-10f), 0x01);
  EXPECT_EQ(F8E5M2FromFloat(FromBits(1)), 0x00);
}

#if defined(__FLT16_MAX__) && !defined(__clang__)
TEST(SmallFloatTest, F16IsTheCompilers) {
  for (uint64_t i = 0; i < (uint64_t{1} << 32); i += 65521) {
    const float value = FromBits(static_cast<uint32_t>(i));
    if (std::isnan(value)) continue;
    const _Float16 theirs = static_cast<_Float16>(value);
    uint16_t bits;
    std::memcpy(&bits, &theirs, sizeof(bits));
    ASSERT_EQ(F16FromFloat(value), bits) << value;
  }
}
#endif

}  // namespace
}  // namespace cohort
