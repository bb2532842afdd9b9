#include "client/collective/trace/chrome_trace.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort::client {
namespace {

TEST(ChromeTraceTest, HasASliceForEachCall) {
  const absl::Time start = absl::FromUnixMicros(1'700'000'000'000'000);
  FlightRecord record;
  record.group = "weights";
  record.rank = 3;
  FlightCall done;
  done.sequence = 7;
  done.collective = Collective::kAllReduce;
  done.type = DataType::kBF16;
  done.bytes = 4096;
  done.started = start;
  done.finished = start + absl::Nanoseconds(2500);
  done.state = "OK";
  FlightCall running = done;
  running.sequence = 8;
  running.collective = Collective::kBroadcast;
  running.root = 1;
  running.started = start + absl::Microseconds(10);
  running.finished.reset();
  running.state = "running";
  record.calls = {done, running};
  FlightRecord other = record;
  other.rank = 4;
  other.calls.clear();

  const auto json = nlohmann::json::parse(ChromeTrace({record, other}, start + absl::Seconds(1)));
  std::vector<nlohmann::json> slices, names;
  for (const auto& event : json["traceEvents"]) {
    (event["ph"] == "X" ? slices : names).push_back(event);
  }
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(names[0]["args"]["name"], "group weights");
  EXPECT_EQ(names[1]["args"]["name"], "rank 3");
  EXPECT_EQ(names[2]["args"]["name"], "rank 4");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0]["name"], "all_reduce");
  EXPECT_EQ(slices[0]["tid"], 3);
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 2.5);
  EXPECT_EQ(slices[0]["args"]["type"], "bf16");
  EXPECT_EQ(slices[0]["args"].count("root"), 0u);
  EXPECT_EQ(slices[1]["name"], "broadcast (running)");
  EXPECT_NEAR(slices[1]["dur"].get<double>(), 1e6 - 10, 1);
  EXPECT_EQ(slices[1]["args"]["root"], 1);
  EXPECT_EQ(slices[1]["pid"], slices[0]["pid"]);
}

TEST(ChromeTraceTest, DevicesHaveTracksOfTheirOwn) {
  const absl::Time start = absl::FromUnixMicros(1'700'000'000'000'000);
  FlightRecord record;
  record.group = "weights";
  record.rank = 3;
  FlightCall done;
  done.collective = Collective::kAllReduce;
  done.started = start;
  done.finished = start + absl::Microseconds(1);
  done.state = "OK";
  FlightCall hangs = done;
  hangs.state = "running on the device";
  done.device_started = start + absl::Microseconds(5);
  done.device_finished = start + absl::Microseconds(8);
  hangs.device_started = start + absl::Microseconds(8);
  record.calls = {done, hangs};

  const auto json = nlohmann::json::parse(ChromeTrace({record}, start + absl::Seconds(1)));
  std::vector<nlohmann::json> slices;
  std::map<int, std::string> names;
  std::map<int, int> order;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    if (event["name"] == "thread_sort_index") {
      order[event["tid"]] = event["args"]["sort_index"];
    }
  }
  ASSERT_EQ(slices.size(), 4u);
  const int device = slices[1]["tid"];
  EXPECT_EQ(names[3], "rank 3");
  EXPECT_EQ(names[device], "rank 3 device");
  EXPECT_EQ(order[device], order[3] + 1);
  EXPECT_EQ(slices[0]["tid"], 3);
  EXPECT_EQ(slices[1]["name"], "all_reduce");
  EXPECT_DOUBLE_EQ(slices[1]["dur"], 3);
  EXPECT_EQ(slices[2]["name"], "all_reduce") << "it returned at once";
  EXPECT_EQ(slices[3]["name"], "all_reduce (running)");
  EXPECT_EQ(slices[3]["tid"], device);
  EXPECT_NEAR(slices[3]["dur"].get<double>(), 1e6 - 8, 1);
}

}  // namespace
}  // namespace cohort::client
