#include <set>
#include <string>

#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(DataTypeTest, NamesLeadBack) {
  std::set<std::string> names;
  for (const DataType type : kDataTypes) {
    EXPECT_EQ(FindDataType(NameOf(type)), type);
    EXPECT_TRUE(names.insert(std::string(NameOf(type))).second) << NameOf(type);
    EXPECT_TRUE(IsDataType(static_cast<int>(type)));
  }
  EXPECT_EQ(FindDataType("f31"), std::nullopt);
  EXPECT_FALSE(IsDataType(0));
  EXPECT_FALSE(IsDataType(static_cast<int>(kDataTypes.size()) + 1));
  EXPECT_FALSE(IsDataType(-1));
}

TEST(DataTypeTest, EachIsOfOneKind) {
  for (const DataType type : kDataTypes) {
    const int kinds = (type == DataType::kBool) + IsInteger(type) + IsFloating(type) +
                      IsComplex(type) + IsOpaque(type);
    EXPECT_EQ(kinds, 1) << NameOf(type);
  }
  EXPECT_TRUE(IsInteger(DataType::kI8));
  EXPECT_TRUE(IsInteger(DataType::kU64));
  EXPECT_TRUE(IsFloating(DataType::kF16));
  EXPECT_TRUE(IsFloating(DataType::kF8E5M2));
  EXPECT_TRUE(IsComplex(DataType::kC64));
}

TEST(DataTypeTest, SizesAreThoseOfTheLanguage) {
  EXPECT_EQ(SizeOf(DataType::kBool), int64_t{sizeof(bool)});
  EXPECT_EQ(SizeOf(DataType::kU16), int64_t{sizeof(uint16_t)});
  EXPECT_EQ(SizeOf(DataType::kF16), 2);
  EXPECT_EQ(SizeOf(DataType::kBF16), 2);
  EXPECT_EQ(SizeOf(DataType::kF32), int64_t{sizeof(float)});
  EXPECT_EQ(SizeOf(DataType::kF64), int64_t{sizeof(double)});
  EXPECT_EQ(SizeOf(DataType::kF8E4M3), 1);
  EXPECT_EQ(SizeOf(DataType::kC128), 16);
}

TEST(ReductionTest, NamesLeadBack) {
  for (const ReduceOp op : kReduceOps) {
    EXPECT_EQ(FindReduceOp(NameOf(op)), op);
    EXPECT_TRUE(IsReduceOp(static_cast<int>(op)));
  }
  EXPECT_EQ(FindReduceOp("mean"), std::nullopt);
  EXPECT_FALSE(IsReduceOp(0));
  EXPECT_FALSE(IsReduceOp(10));
}

TEST(ReductionTest, SaysWhatCannotBeReduced) {
  EXPECT_TRUE(CheckReducible(DataType::kBF16, ReduceOp::kAvg).ok());
  EXPECT_TRUE(CheckReducible(DataType::kU8, ReduceOp::kBitXor).ok());
  EXPECT_TRUE(CheckReducible(DataType::kBool, ReduceOp::kMax).ok());
  const absl::Status status = CheckReducible(DataType::kF32, ReduceOp::kBitOr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "elements of f32 cannot be reduced by bit_or");
  EXPECT_FALSE(CheckReducible(DataType::kI32, ReduceOp::kPreMulSum).ok());
  EXPECT_FALSE(CheckReducible(DataType::kBool, ReduceOp::kAvg).ok());
  for (const ReduceOp op : kReduceOps) {
    EXPECT_FALSE(CheckReducible(DataType::kC64, op).ok());
    EXPECT_FALSE(CheckReducible(DataType::kF8E8M0, op).ok());
    EXPECT_FALSE(CheckReducible(DataType::kF6E3M2, op).ok());
  }
}

}  // namespace
}  // namespace cohort
