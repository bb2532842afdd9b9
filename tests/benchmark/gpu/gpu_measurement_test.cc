// Tests how the GPU benchmark measures, on the fake CUDA and the fake NCCL. The times mean nothing,
// but every operation and size is run, verified and reported.
#include "tests/benchmark/gpu/gpu_measurement.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/benchmark/nccl_source.h"

namespace cohort::benchmark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMost = 1 << 20;

GpuMeasureOptions Quick() {
  GpuMeasureOptions options;
  options.rounds = 3;
  options.burst = absl::Milliseconds(1);
  options.most_calls = 4;
  return options;
}

// Logs its calls. It supports queued calls if `queues` is set.
class Scripted final : public DeviceImplementation {
 public:
  Scripted(std::string name, std::vector<std::string>* log, bool queues, bool fails)
      : name_(std::move(name)), log_(*log), queues_(queues), fails_(fails) {}

  const std::string& name() const override { return name_; }
  absl::Status Prepare(Collective operation, int64_t bytes) override {
    log_.push_back(absl::StrCat(name_, " ", NameOf(operation), " ", bytes));
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Duration> RunBlocking(int calls) override {
    log_.push_back(absl::StrCat(name_, " blocking ", calls));
    return calls * absl::Microseconds(100);
  }
  absl::StatusOr<Queued> RunQueued(int calls) override {
    if (!queues_) return absl::UnimplementedError("no");
    log_.push_back(absl::StrCat(name_, " queued ", calls));
    return Queued{calls * absl::Microseconds(5), calls * absl::Microseconds(50)};
  }
  absl::Status Verify() override {
    return fails_ ? absl::DataLossError("wrong") : absl::OkStatus();
  }

 private:
  const std::string name_;
  std::vector<std::string>& log_;
  const bool queues_;
  const bool fails_;
};

std::vector<std::unique_ptr<DeviceImplementation>> Two(std::vector<std::string>* log, bool fails) {
  std::vector<std::unique_ptr<DeviceImplementation>> implementations;
  implementations.push_back(std::make_unique<Scripted>("nccl", log, true, false));
  implementations.push_back(std::make_unique<Scripted>("cohort", log, false, fails));
  return implementations;
}

TEST(GpuMeasurementTest, ImplementationsAlternateInEachRound) {
  std::vector<std::string> log;
  GpuMeasureOptions options = Quick();
  options.rounds = 2;
  const auto implementations = Two(&log, false);
  const auto results = MeasureGpuOperation(options, Collective::kBroadcast, 64, implementations);
  EXPECT_THAT(
      log, ElementsAre("nccl broadcast 64", "nccl blocking 3", "nccl queued 3", "nccl blocking 3",
                       "cohort broadcast 64", "cohort blocking 3", "cohort blocking 3",
                       "nccl blocking 4", "nccl queued 4", "cohort blocking 4", "nccl blocking 4",
                       "nccl queued 4", "cohort blocking 4"));
  const std::vector<Row> rows = RowsOf(Collective::kBroadcast, 64, results);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].dump(),
            R"({"section":"gpu","operation":"broadcast","members":1,"bytes":64,)"
            R"("implementation":"nccl","memory":"device","mode":"blocking","median_us":100.0,)"
            R"("min_us":100.0,"max_us":100.0,"calls":4,"rounds":2,"times_nccl":1.0})");
  EXPECT_EQ(rows[1]["mode"], "queued");
  EXPECT_EQ(rows[1]["median_us"], 50);
  EXPECT_EQ(rows[2]["mode"], "enqueue");
  EXPECT_EQ(rows[2]["median_us"], 5);
  EXPECT_EQ(rows[3]["implementation"], "cohort");
}

TEST(GpuMeasurementTest, AWrongResultIsNoResult) {
  std::vector<std::string> log;
  const auto implementations = Two(&log, true);
  const auto results = MeasureGpuOperation(Quick(), Collective::kAllReduce, 64, implementations);
  EXPECT_THAT(std::string(results.back().status.message()), HasSubstr("wrong"));
  for (const Row& row : RowsOf(Collective::kAllReduce, 64, results)) {
    EXPECT_EQ(row["implementation"], "nccl");
  }
}

TEST(GpuMeasurementTest, CohortAndNcclDoAllOperationsAndSizes) {
  const auto nccl = LinkedNccl();
  ASSERT_TRUE(nccl.ok());
  std::vector<std::unique_ptr<DeviceImplementation>> implementations;
  for (const auto make : {MakeNcclImplementation, MakeCohortImplementation}) {
    auto implementation = make(*nccl, kMost);
    ASSERT_TRUE(implementation.ok()) << implementation.status();
    implementations.push_back(*std::move(implementation));
  }
  for (const Collective operation : kDeviceOperations) {
    for (const int64_t bytes : {int64_t{8}, int64_t{65540}, kMost}) {
      const auto results = MeasureGpuOperation(Quick(), operation, bytes, implementations);
      for (const GpuResult& result : results) {
        EXPECT_EQ(result.status, absl::OkStatus()) << NameOf(operation) << " " << bytes;
        EXPECT_EQ(result.seconds.size(), 3u);
      }
      const std::vector<Row> rows = RowsOf(operation, bytes, results);
      ASSERT_GE(rows.size(), 4u);
      for (const Row& row : rows) {
        EXPECT_GT(row["median_us"], 0) << row;
        EXPECT_GT(row["times_nccl"], 0) << row;
      }
    }
  }
}

}  // namespace
}  // namespace cohort::benchmark
