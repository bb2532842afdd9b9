#include "client/parallel/moe/rows/row_counts.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

template <typename Value>
void ExpectRefused(const absl::StatusOr<Value>& result, const char* why) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_THAT(result.status().message(), HasSubstr(why));
}

TEST(SequenceSizes, RepeatEachShareForTheRanksThatHaveIt) {
  EXPECT_THAT(*SequenceSizes({7, 0, 4}, 2), ElementsAre(4, 4, 0, 0, 2, 2));
  EXPECT_THAT(*SequenceSizes({7, 1}, 3), ElementsAre(3, 3, 3, 1, 1, 1));
}

TEST(SequenceSizes, OneRankHasItsOwnSizes) {
  EXPECT_THAT(*SequenceSizes({7, 0, 4}, 1), ElementsAre(7, 0, 4));
  EXPECT_THAT(*SequenceSizes({}, 4), IsEmpty());
}

TEST(SequenceSizes, RejectValuesOutOfRange) {
  ExpectRefused(SequenceSizes({3, -1}, 2), "a size of -1 for rank 1");
  ExpectRefused(SequenceSizes({3}, 0), "0 ranks that share a batch");
  ExpectRefused(SequenceSizes({3, 4}, std::numeric_limits<int>::max()),
                "of more than 1048576 ranks");
  ExpectRefused(SequenceSizes({kMost, 1}, 1), "larger than memory");
  ExpectRefused(SequenceSizes({kMost}, 2), "larger than memory");
}

TEST(ChunkSizes, EndWithZeroRows) {
  const client::Sizes sizes = {10, 4, 0};
  EXPECT_THAT(*ChunkSizes(sizes, 4, 0), ElementsAre(4, 4, 0));
  EXPECT_THAT(*ChunkSizes(sizes, 4, 1), ElementsAre(4, 0, 0));
  EXPECT_THAT(*ChunkSizes(sizes, 4, 2), ElementsAre(2, 0, 0));
  EXPECT_THAT(*ChunkSizes(sizes, 4, 3), ElementsAre(0, 0, 0));
  EXPECT_EQ(*ChunkCount(sizes, 4), 3);
}

TEST(ChunkSizes, PadToARowWhereAsked) {
  EXPECT_THAT(*ChunkSizes({10, 4, 0}, 4, 2, 1), ElementsAre(2, 1, 1));
}

TEST(ChunkSizes, CoverEveryRowOnce) {
  const client::Sizes sizes = {17, 1, 8, 0, 9};
  for (int64_t limit = 1; limit <= 18; ++limit) {
    client::Sizes sum(sizes.size(), 0);
    const int64_t chunks = *ChunkCount(sizes, limit);
    EXPECT_EQ(chunks, (17 + limit - 1) / limit);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const client::Sizes rows = *ChunkSizes(sizes, limit, chunk);
      for (size_t rank = 0; rank < sizes.size(); ++rank) sum[rank] += rows[rank];
    }
    EXPECT_EQ(sum, sizes);
  }
}

TEST(ChunkSizes, RejectValuesOutOfRange) {
  ExpectRefused(ChunkSizes({3}, 0, 0), "chunks of at most 0 rows");
  ExpectRefused(ChunkSizes({3}, 4, -1), "no chunk -1");
  ExpectRefused(ChunkSizes({3}, 4, 0, 5), "at least 5 rows");
  ExpectRefused(ChunkSizes({3}, 4, 0, -1), "at least -1 rows");
  ExpectRefused(ChunkSizes({-3}, 4, 0), "a size of -3");
  ExpectRefused(ChunkCount({3}, 0), "chunks of at most 0 rows");
  EXPECT_THAT(*ChunkSizes({kMost}, 4, kMost), ElementsAre(0));
}

TEST(Offsets, AreARunningSum) {
  EXPECT_THAT(*Offsets({3, 0, 2}), ElementsAre(0, 3, 3, 5));
  EXPECT_THAT(*Offsets({}), ElementsAre(0));
  ExpectRefused(Offsets({1, -2}), "a size of -2 for rank 1");
}

}  // namespace
}  // namespace cohort::parallel
