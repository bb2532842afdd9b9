#include "worker/group/testing/rank_program/sample_numbers.h"

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCount = 2 * kSamplePeriod + 100;

std::string Reduced(const SampleSet& set, const Reduction& reduction, int64_t at) {
  std::vector<std::string> samples;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < set.ranks; ++rank) {
    samples.push_back(Sample(set, rank, at, kCount));
  }
  for (const std::string& sample : samples) inputs.push_back(sample.data());
  std::string result(static_cast<size_t>(kCount * SizeOf(set.type)), '\0');
  void* const output = result.data();
  worker::Reduce(set.type, reduction, inputs, absl::MakeConstSpan(&output, 1), kCount);
  return result;
}

TEST(SampleNumbersTest, TakesTheReductionsOfTheHostForRight) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!CheckReducible(type, op).ok()) continue;
      for (const int ranks : {1, 2, 3, 4}) {
        const SampleSet set = {7, ranks, type};
        const Reduction reduction = {op, 0.75};
        EXPECT_EQ(CheckReduced(set, reduction, 11, Reduced(set, reduction, 11)), absl::OkStatus())
            << NameOf(type) << " by " << NameOf(op) << " of " << ranks;
      }
    }
  }
}

TEST(SampleNumbersTest, FindsWhatIsWrong) {
  for (const DataType type : kDataTypes) {
    const ReduceOp op = ReduceOp::kMax;
    if (!CheckReducible(type, op).ok()) continue;
    const SampleSet set = {7, 3, type};
    // Elements after the first period are checked too.
    for (const int64_t element : {int64_t{0}, int64_t{1000}, kCount - 1}) {
      std::string wrong = Reduced(set, {op}, 0);
      // Changes the sign of a number, or the value of a bool.
      const size_t last = static_cast<size_t>((element + 1) * SizeOf(type)) - 1;
      wrong[last] = type == DataType::kBool ? static_cast<char>(wrong[last] == 0)
                                            : static_cast<char>(wrong[last] ^ 0x41);
      const absl::Status status = CheckReduced(set, {op}, 0, wrong);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << NameOf(type);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("element " + std::to_string(element) + " is"));
    }
  }
}

TEST(SampleNumbersTest, RanksSeedsAndOffsetsDiffer) {
  for (const DataType type : kDataTypes) {
    const SampleSet set = {7, 3, type};
    const std::string sample = Sample(set, 0, 0, 100);
    EXPECT_NE(sample, Sample(set, 1, 0, 100));
    EXPECT_NE(sample, Sample({8, 3, type}, 0, 0, 100));
    EXPECT_NE(sample, Sample(set, 0, 1, 100));
    EXPECT_EQ(sample.substr(static_cast<size_t>(SizeOf(type))), Sample(set, 0, 1, 99));
    EXPECT_EQ(sample, Sample(set, 0, kSamplePeriod, 100));
  }
}

TEST(SampleNumbersTest, NamesTheFirstWrongElement) {
  EXPECT_EQ(CheckMoved(DataType::kI16, "abcd", "abcd"), absl::OkStatus());
  EXPECT_THAT(std::string(CheckMoved(DataType::kI16, "abcd", "abce").message()),
              HasSubstr("element 1 has the bytes 6365, not 6364"));
  EXPECT_FALSE(CheckMoved(DataType::kI16, "abcd", "ab").ok());
}

}  // namespace
}  // namespace cohort::testing
