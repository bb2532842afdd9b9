#include "client/collective/trace/flight_record.h"

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::HasSubstr;

FlightRecord Sample() {
  FlightRecord record;
  record.tenant = "t";
  record.group = "weights";
  record.generation = 3;
  record.rank = 1;
  record.world_size = 2;
  record.host = "host-a";
  record.pid = 4711;
  record.clock = "c";
  record.calendar = absl::Seconds(1'700'000'000) + absl::Nanoseconds(7);
  record.taken = absl::FromUnixNanos(1'700'000'100'000'000'001);
  FlightCall call;
  call.sequence = 9;
  call.generation = 3;
  call.number = 8;
  call.collective = Collective::kBroadcast;
  call.type = DataType::kBF16;
  call.bytes = 4096;
  call.root = 1;
  call.on_stream = true;
  call.started = absl::FromUnixNanos(1'700'000'000'123'456'789);
  call.finished = call.started + absl::Nanoseconds(11);
  call.device_started = call.started + absl::Nanoseconds(22);
  call.state = "running on the device";
  record.calls.push_back(call);
  FlightCall runs;
  runs.started = call.started;
  runs.state = "running";
  record.calls.push_back(runs);
  return record;
}

TEST(FlightRecordFileTest, ComesBackAsItWas) {
  const FlightRecord record = Sample();
  const auto read = ParseFlightRecords(FormatFlightRecords({record, record}));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  const FlightRecord& back = read->back();
  EXPECT_EQ(back.tenant, record.tenant);
  EXPECT_EQ(back.group, record.group);
  EXPECT_EQ(back.generation, 3);
  EXPECT_EQ(back.rank, 1);
  EXPECT_EQ(back.world_size, 2);
  EXPECT_EQ(back.host, "host-a");
  EXPECT_EQ(back.pid, 4711);
  EXPECT_EQ(back.clock, "c");
  EXPECT_EQ(back.calendar, record.calendar);
  EXPECT_EQ(back.taken, record.taken);
  ASSERT_EQ(back.calls.size(), 2u);
  const FlightCall& call = back.calls[0];
  const FlightCall& was = record.calls[0];
  EXPECT_EQ(call.sequence, 9);
  EXPECT_EQ(call.generation, 3);
  EXPECT_EQ(call.number, 8);
  EXPECT_EQ(call.collective, Collective::kBroadcast);
  EXPECT_EQ(call.type, DataType::kBF16);
  EXPECT_EQ(call.bytes, 4096);
  EXPECT_EQ(call.root, 1);
  EXPECT_TRUE(call.on_stream);
  EXPECT_EQ(call.started, was.started);
  EXPECT_EQ(call.finished, was.finished);
  EXPECT_EQ(call.device_started, was.device_started);
  EXPECT_FALSE(call.device_finished.has_value());
  EXPECT_EQ(call.state, was.state);
  EXPECT_FALSE(back.calls[1].finished.has_value());
}

TEST(FlightRecordFileTest, AFileThatIsNoRecordIsRejectedWithTheReason) {
  const auto why = [](const std::string& text) {
    return std::string(ParseFlightRecords(text).status().message());
  };
  EXPECT_THAT(why(""), HasSubstr("damaged"));
  EXPECT_THAT(why("{\"traceEvents\":[]}"), HasSubstr("no flight records"));
  EXPECT_THAT(why("{\"cohort_flight_records\":[{}]}"), HasSubstr("tenant"));
  EXPECT_THAT(why("{\"cohort_flight_records\":7}"), HasSubstr("damaged"));
  FlightRecord record = Sample();
  record.rank = 2;
  EXPECT_THAT(why(FormatFlightRecords({record})), HasSubstr("rank 2 of 2"));
  const std::string whole = FormatFlightRecords({Sample()});
  for (size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseFlightRecords(whole.substr(0, size)).status()));
  }
  std::string other = whole;
  other.replace(other.find("bf16"), 4, "bf17");
  EXPECT_THAT(why(other), HasSubstr("bf17"));
}

TEST(FlightRecordFileTest, IsWrittenAsAWhole) {
  const std::string path = testing::TempDir() + "/record.json";
  std::ofstream(path) << "the one before";
  ASSERT_TRUE(WriteFlightRecords(path, {Sample()}).ok());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_TRUE(ParseFlightRecords(text.str()).ok());
  const absl::Status failed = WriteFlightRecords("/no/such/folder/record.json", {});
  EXPECT_THAT(std::string(failed.message()), HasSubstr("/no/such/folder/record.json"));
}

}  // namespace
}  // namespace cohort::client
