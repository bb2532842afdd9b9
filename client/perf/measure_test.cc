#include "client/perf/measure.h"

#include "client/collective/testing/lone_group.h"
#include "gtest/gtest.h"

namespace cohort::perf {
namespace {

// A clock that advances by ten milliseconds with each reading.
class TickingClock : public Clock {
 public:
  Instant Now() const override { return now_ += absl::Milliseconds(10); }

 private:
  mutable Instant now_ = absl::UnixEpoch();
};

Case Make(Collective operation) {
  return MakeCase(operation, 8000, DataType::kBF16, {ReduceOp::kSum}, 0, 1);
}

TEST(MeasureTest, AllThatARankAloneCanDoIsRight) {
  for (const Collective operation : kOperations) {
    if (operation == Collective::kExchange) continue;
    client::LoneGroup group;
    const auto row = Measure(group, Make(operation), {}, TickingClock());
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_EQ(row->out_of_place.has_value(), RunsOutOfPlace(operation));
    EXPECT_EQ(row->in_place.has_value(), RunsInPlace(operation));
    for (const auto& figures : {row->out_of_place, row->in_place}) {
      if (figures.has_value()) {
        EXPECT_EQ(figures->wrong, 0) << OperationName(operation);
      }
    }
  }
}

TEST(MeasureTest, WrongElementsAreCounted) {
  MeasureOptions options;
  options.iterations = 10;
  options.warmup = 1;
  options.checks = 3;
  client::LoneGroup group;
  // One call to warm up, ten timed, with one broadcast before each and one behind; their times;
  // then the checked ones.
  group.spoils_call = 1 + 21 + 1 + 2;
  const auto row = Measure(group, Make(Collective::kBroadcast), options, TickingClock());
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->in_place->wrong, 1);
}

TEST(MeasureTest, TimesAreOfOneCall) {
  MeasureOptions options;
  options.iterations = 1000;
  client::LoneGroup group;
  const auto row = Measure(group, Make(Collective::kAllReduce), options, TickingClock());
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->in_place->iterations, 1000);
  // A batch of a hundred calls takes one tick.
  EXPECT_NEAR(row->in_place->median_us, 100, 1e-9);
  EXPECT_NEAR(row->in_place->mean_us, 100, 1e-9);
}

TEST(MeasureTest, UnevenNumbersOfCallsAreKept) {
  MeasureOptions options;
  options.iterations = 13;
  client::LoneGroup group;
  const auto row = Measure(group, Make(Collective::kAllReduce), options, TickingClock());
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->out_of_place->iterations, 13);
}

TEST(MeasureTest, NothingIsCheckedIfNotAskedFor) {
  MeasureOptions options;
  options.checks = 0;
  client::LoneGroup group;
  const auto row = Measure(group, Make(Collective::kAllReduce), options, TickingClock());
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->in_place->wrong, std::nullopt);
}

TEST(MeasureTest, ErrorsOfTheGroupEndIt) {
  client::LoneGroup group;
  group.error = absl::AbortedError("rank 3 is gone");
  const auto row = Measure(group, Make(Collective::kAllReduce), {}, TickingClock());
  EXPECT_EQ(row.status(), group.error);
}

}  // namespace
}  // namespace cohort::perf
