#include "worker/communicator/nccl/api/nccl_types.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kHopper = 90;
constexpr int kRanks = 2;

int64_t BytesOf(ncclDataType_t type) {
  static const auto* const bytes = new std::map<ncclDataType_t, int64_t>{
      {ncclInt8, 1},    {ncclUint8, 1},   {ncclInt32, 4},      {ncclUint32, 4},
      {ncclInt64, 8},   {ncclUint64, 8},  {ncclFloat16, 2},    {ncclBfloat16, 2},
      {ncclFloat32, 4}, {ncclFloat64, 8}, {ncclFloat8e4m3, 1}, {ncclFloat8e5m2, 1}};
  return bytes->at(type);
}

TEST(NcclTypesTest, EveryTypeTravelsWhole) {
  for (const DataType type : kDataTypes) {
    const NcclElements elements = ElementsToMove(type);
    EXPECT_EQ(BytesOf(elements.type) * elements.factor, SizeOf(type)) << NameOf(type);
  }
}

TEST(NcclTypesTest, TypesThatNcclLacksTravelAsBytes) {
  for (const DataType type :
       {DataType::kBool, DataType::kI16, DataType::kU16, DataType::kC64, DataType::kC128}) {
    EXPECT_EQ(ElementsToMove(type).type, ncclUint8) << NameOf(type);
  }
  EXPECT_EQ(ElementsToMove(DataType::kBF16).type, ncclBfloat16);
  EXPECT_EQ(ElementsToMove(DataType::kBF16).factor, 1);
}

// For all pairs: NCCL computes the reduction that was asked for, or it is refused.
TEST(NcclTypesTest, EveryReductionIsExpressedOrRefused) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const std::string what = std::string(NameOf(type)) + " by " + std::string(NameOf(op));
      const auto reduction = ReductionFor(type, op, kHopper, kRanks);
      if (!CheckReducible(type, op).ok()) {
        EXPECT_EQ(reduction.status(), CheckReducible(type, op)) << what;
        continue;
      }
      const bool bitwise =
          op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
      const bool short_integer = type == DataType::kI16 || type == DataType::kU16;
      const bool refused =
          type == DataType::kBool ? op == ReduceOp::kBitXor : bitwise || short_integer;
      if (refused) {
        EXPECT_EQ(reduction.status().code(), absl::StatusCode::kUnimplemented) << what;
        EXPECT_THAT(
            std::string(reduction.status().message()),
            AllOf(HasSubstr(std::string(NameOf(type))), HasSubstr(std::string(NameOf(op)))));
        continue;
      }
      ASSERT_TRUE(reduction.ok()) << what << ": " << reduction.status();
      EXPECT_EQ(BytesOf(reduction->type), SizeOf(type)) << what;
    }
  }
}

TEST(NcclTypesTest, NamesOfReductions) {
  const std::map<ReduceOp, ncclRedOp_t> expected = {
      {ReduceOp::kSum, ncclSum}, {ReduceOp::kProd, ncclProd}, {ReduceOp::kMin, ncclMin},
      {ReduceOp::kMax, ncclMax}, {ReduceOp::kAvg, ncclAvg},   {ReduceOp::kPreMulSum, ncclNumOps}};
  for (const auto& [op, name] : expected) {
    const auto reduction = ReductionFor(DataType::kF32, op, kHopper, kRanks);
    ASSERT_TRUE(reduction.ok()) << reduction.status();
    EXPECT_EQ(reduction->op, name) << NameOf(op);
    EXPECT_EQ(reduction->type, ncclFloat32);
  }
}

TEST(NcclTypesTest, OneRank) {
  for (const DataType type : {DataType::kF8E4M3, DataType::kF8E5M2, DataType::kF32}) {
    EXPECT_EQ(ReductionFor(type, ReduceOp::kAvg, kHopper, 1)->op, ncclSum);
    const absl::Status scaled = ReductionFor(type, ReduceOp::kPreMulSum, kHopper, 1).status();
    EXPECT_EQ(scaled.code(),
              type == DataType::kF32 ? absl::StatusCode::kOk : absl::StatusCode::kUnimplemented);
  }
}

TEST(NcclTypesTest, BoolIsAnyOrAllOfUnsignedBytes) {
  for (const ReduceOp any : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBitOr}) {
    const auto reduction = ReductionFor(DataType::kBool, any, kHopper, kRanks);
    ASSERT_TRUE(reduction.ok()) << reduction.status();
    EXPECT_EQ(reduction->type, ncclUint8);
    EXPECT_EQ(reduction->op, ncclMax);
  }
  for (const ReduceOp all : {ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kBitAnd}) {
    const auto reduction = ReductionFor(DataType::kBool, all, kHopper, kRanks);
    ASSERT_TRUE(reduction.ok()) << reduction.status();
    EXPECT_EQ(reduction->type, ncclUint8);
    EXPECT_EQ(reduction->op, ncclMin);
  }
}

TEST(NcclTypesTest, ReducesF8WhereTheDeviceDoes) {
  for (const DataType type : {DataType::kF8E4M3, DataType::kF8E5M2}) {
    EXPECT_TRUE(ReductionFor(type, ReduceOp::kSum, 90, kRanks).ok());
    EXPECT_TRUE(ReductionFor(type, ReduceOp::kSum, 120, kRanks).ok());
    const absl::Status refused = ReductionFor(type, ReduceOp::kSum, 89, kRanks).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("this is 8.9"));
    // It travels anywhere.
    EXPECT_EQ(ElementsToMove(type).factor, 1);
  }
}

}  // namespace
}  // namespace cohort::worker
