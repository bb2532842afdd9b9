#include "client/perf/cases.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::perf {
namespace {

using ::testing::ElementsAre;

Case Make(Collective operation, int64_t bytes, int ranks, DataType type = DataType::kF32) {
  return MakeCase(operation, bytes, type, {ReduceOp::kSum}, 0, ranks);
}

TEST(CasesTest, NamesAreFound) {
  for (const Collective operation : kOperations) {
    EXPECT_EQ(FindOperation(OperationName(operation)), operation);
  }
  EXPECT_EQ(FindOperation("all-reduce"), std::nullopt);
}

TEST(CasesTest, SizeIsOfTheWholeBufferWhereThereAreNoParts) {
  EXPECT_EQ(Make(Collective::kAllReduce, 1000, 3).count, 250);
  EXPECT_EQ(Make(Collective::kExchange, 1003, 3).bytes(), 1000);
  EXPECT_EQ(Make(Collective::kBroadcast, 1, 3).count, 1);
}

TEST(CasesTest, PartsAreEqualAndAligned) {
  // 1 MiB by 3 ranks: parts of a multiple of 16 bytes.
  EXPECT_EQ(Make(Collective::kAllGather, 1 << 20, 3).count, 3 * 87380);
  EXPECT_EQ(Make(Collective::kAllGather, 100, 2).bytes(), 96);
  EXPECT_EQ(Make(Collective::kScatter, 100, 2, DataType::kU8).bytes(), 96);
  // Small ones are not lost.
  EXPECT_EQ(Make(Collective::kAllToAll, 8, 3).count, 3);
  EXPECT_EQ(Make(Collective::kReduceScatter, 24, 3).count, 6);
}

TEST(CasesTest, RootsGoWhereThereIsOne) {
  EXPECT_EQ(MakeCase(Collective::kReduce, 8, DataType::kF32, {}, 2, 3).root, 2);
  EXPECT_EQ(MakeCase(Collective::kAllReduce, 8, DataType::kF32, {}, 2, 3).root, 0);
}

// The factors of nccl-tests' PERFORMANCE.md.
TEST(CasesTest, BusFactorsMatchNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 4), 1.5);
  for (const Collective operation :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
        Collective::kGather, Collective::kScatter}) {
    EXPECT_DOUBLE_EQ(BusFactor(operation, 4), 0.75);
  }
  for (const Collective operation :
       {Collective::kReduce, Collective::kBroadcast, Collective::kExchange}) {
    EXPECT_DOUBLE_EQ(BusFactor(operation, 4), 1);
  }
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 1), 0);
}

TEST(CasesTest, AlgorithmBandwidthIsSizeByTime) {
  // 16 MB in 8 ms.
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(Make(Collective::kAllGather, 16'000'000, 2), 8e-3), 2);
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(Make(Collective::kAllReduce, 8, 2), 0), 0);
}

TEST(CasesTest, SizesAreRead) {
  EXPECT_EQ(*ParseSize("8"), 8);
  EXPECT_EQ(*ParseSize("64K"), 65536);
  EXPECT_EQ(*ParseSize("1m"), 1 << 20);
  EXPECT_EQ(*ParseSize("3G"), int64_t{3} << 30);
  for (const char* wrong : {"", "K", "0", "-1", "+1", "1.5M", "1T", "8 ", "9223372036854775807K"}) {
    EXPECT_EQ(ParseSize(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(CasesTest, RangesOfSizesEndAtTheLargest) {
  EXPECT_THAT(*SizeRange(8, 100, 4), ElementsAre(8, 32));
  EXPECT_THAT(*SizeRange(8, 8, 2), ElementsAre(8));
  EXPECT_THAT(*SizeRange(int64_t{1} << 61, INT64_MAX, 2),
              ElementsAre(int64_t{1} << 61, int64_t{1} << 62));
  EXPECT_FALSE(SizeRange(8, 4, 2).ok());
  EXPECT_FALSE(SizeRange(8, 16, 1).ok());
  EXPECT_FALSE(SizeRange(0, 16, 2).ok());
}

}  // namespace
}  // namespace cohort::perf
