#include "client/cli/tensor_commands/perf_table.h"

#include <string>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

perf::Row AllReduceRow() {
  perf::Row row;
  row.run =
      perf::MakeCase(Collective::kAllReduce, 1 << 20, DataType::kBF16, {ReduceOp::kMax}, 0, 4);
  row.out_of_place = perf::Figures{100, 110, 90, 500, 0};
  row.in_place = perf::Figures{50, 60, 40, 700, 3};
  return row;
}

TEST(PerfTableTest, PrintsTheColumnsOfNcclTests) {
  EXPECT_EQ(PerfLine(AllReduceRow(), 4),
            "all_reduce          1048576       524288    bf16         max    -"
            "       100.0    10.49    15.73       0         50.0    20.97    31.46       3\n");
}

TEST(PerfTableTest, ColumnsStandBelowTheirTitles) {
  const std::vector<std::string> titles = absl::StrSplit(PerfTitles(), '\n');
  const std::string line = PerfLine(AllReduceRow(), 4);
  EXPECT_EQ(titles[1].size() + 1, line.size());
  EXPECT_EQ(titles[1].find("time (us)") + 9, line.find("100.0") + 5);
}

TEST(PerfTableTest, MissingValuesAreDashes) {
  perf::Row row = AllReduceRow();
  row.run = perf::MakeCase(Collective::kBroadcast, 8, DataType::kU8, {}, 1, 4);
  row.out_of_place.reset();
  row.in_place->wrong.reset();
  EXPECT_EQ(PerfLine(row, 4),
            "broadcast                 8            8      u8           -    1"
            "           -        -        -       -         50.0     0.00     0.00       -\n");
}

TEST(PerfTableTest, JsonHasWhatIsKnown) {
  const Json json = PerfJson(AllReduceRow(), 4, "registered");
  EXPECT_EQ(json["operation"], "all_reduce");
  EXPECT_EQ(json["size_bytes"], 1 << 20);
  EXPECT_EQ(json["reduction"], "max");
  EXPECT_FALSE(json.contains("root"));
  EXPECT_EQ(json["in_place"]["wrong_count"], 3);
  EXPECT_DOUBLE_EQ(json["out_of_place"]["busbw_gb_per_second"], 1.048576 / 100e-6 / 1e3 * 1.5);
}

TEST(PerfTableTest, WrongElementsOfBothWaysCount) {
  perf::Row row = AllReduceRow();
  EXPECT_EQ(WrongOf(row), 3);
  row.out_of_place->wrong = 4;
  EXPECT_EQ(WrongOf(row), 7);
  row.in_place.reset();
  row.out_of_place->wrong.reset();
  EXPECT_EQ(WrongOf(row), 0);
}

}  // namespace
}  // namespace cohort::cli
