#include "client/collective/trace/merge_flight_records.h"

#include <random>

#include "client/collective/trace/chrome_trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

FlightRecord Rank(int rank, int world_size, const std::string& clock = "one") {
  FlightRecord record;
  record.group = "weights";
  record.generation = 2;
  record.rank = rank;
  record.world_size = world_size;
  record.host = "host-" + clock;
  record.clock = clock;
  record.taken = kStart + absl::Seconds(10);
  return record;
}

// Adds the next call of the rank, from and to microseconds of true time.
FlightCall& Add(FlightRecord& record, Collective collective, int64_t from, int64_t to,
                int root = -1) {
  FlightCall call;
  call.sequence = static_cast<int64_t>(record.calls.size()) + 1;
  call.generation = record.generation;
  call.number = record.calls.empty() ? 1 : record.calls.back().number + 1;
  call.collective = collective;
  call.bytes = 64;
  call.root = root;
  call.started = kStart + absl::Microseconds(from);
  call.finished = kStart + absl::Microseconds(to);
  call.state = "OK";
  record.calls.push_back(call);
  return record.calls.back();
}

void LetRun(FlightCall& call) {
  call.finished.reset();
  call.state = "running";
}

// The record as a clock shows it that is so much ahead.
FlightRecord Shown(FlightRecord record, absl::Duration ahead) {
  record.taken += ahead;
  for (FlightCall& call : record.calls) {
    call.started += ahead;
    if (call.finished.has_value()) *call.finished += ahead;
  }
  return record;
}

std::vector<absl::Duration> WaitsOf(const TraceCall& call, size_t ranks) {
  std::vector<absl::Duration> waits(ranks);
  for (const TracePart& part : call.parts) waits[static_cast<size_t>(part.rank)] = part.waited;
  return waits;
}

TEST(GroupTraceTest, NamesTheLastRankAndTheWaitsOfTheOthers) {
  FlightRecord a = Rank(0, 3);
  FlightRecord b = Rank(1, 3);
  FlightRecord c = Rank(2, 3);
  Add(a, Collective::kAllReduce, 0, 510);
  Add(b, Collective::kAllReduce, 100, 505);
  Add(c, Collective::kAllReduce, 500, 504);
  Add(a, Collective::kAllReduce, 600, 700);
  Add(b, Collective::kAllReduce, 690, 702);
  Add(c, Collective::kAllReduce, 610, 701);
  const GroupTrace trace = PutTogether({c, a, b}, true);
  ASSERT_EQ(trace.ranks.size(), 3u);
  EXPECT_EQ(trace.ranks[0].record.rank, 0);
  EXPECT_EQ(trace.clocks.size(), 1u);
  ASSERT_EQ(trace.calls.size(), 2u);
  const TraceCall& first = trace.calls[0];
  EXPECT_EQ(first.last, 2);
  EXPECT_TRUE(first.certain);
  EXPECT_EQ(first.longest_wait, absl::Microseconds(500));
  EXPECT_THAT(WaitsOf(first, 3),
              ElementsAre(absl::Microseconds(500), absl::Microseconds(400), absl::ZeroDuration()));
  EXPECT_EQ(trace.calls[1].last, 1);
  EXPECT_EQ(trace.ranks[2].last_in, 1);
  EXPECT_EQ(trace.ranks[2].waited_for, absl::Microseconds(500));
}

TEST(GroupTraceTest, OnlyRanksThatNeedTheRootWaitForIt) {
  FlightRecord a = Rank(0, 3);
  FlightRecord b = Rank(1, 3);
  FlightRecord c = Rank(2, 3);
  // No rank waits for rank 2 in the broadcast of rank 1, and rank 0 waits for no rank in the gather
  // to 1.
  Add(a, Collective::kBroadcast, 0, 60, 1);
  Add(b, Collective::kBroadcast, 50, 55, 1);
  Add(c, Collective::kBroadcast, 500, 510, 1);
  Add(a, Collective::kGather, 600, 601, 1);
  Add(b, Collective::kGather, 610, 910, 1);
  Add(c, Collective::kGather, 900, 901, 1);
  const GroupTrace trace = PutTogether({a, b, c}, true);
  EXPECT_EQ(trace.calls[0].last, 1);
  EXPECT_THAT(WaitsOf(trace.calls[0], 3),
              ElementsAre(absl::Microseconds(50), absl::ZeroDuration(), absl::ZeroDuration()));
  EXPECT_EQ(trace.calls[1].last, 2);
  EXPECT_THAT(WaitsOf(trace.calls[1], 3),
              ElementsAre(absl::ZeroDuration(), absl::Microseconds(290), absl::ZeroDuration()));
  EXPECT_TRUE(trace.calls[0].certain && trace.calls[1].certain);

  // Rank 0 waited in the broadcast, whatever rank 2's clock shows; the gather's last is a guess.
  c.clock = "another";
  const GroupTrace raw = PutTogether({a, b, c}, false);
  EXPECT_TRUE(raw.calls[0].certain);
  EXPECT_FALSE(raw.calls[1].certain);
}

TEST(GroupTraceTest, ClocksOfOneMachineAreOneWhateverTheirCalendars) {
  FlightRecord a = Rank(0, 2);
  FlightRecord b = Rank(1, 2);
  Add(a, Collective::kAllReduce, 0, 110);
  Add(b, Collective::kAllReduce, 100, 111);
  // Read an hour later, after the clock was set.
  b = Shown(b, absl::Hours(1));
  b.calendar = a.calendar + absl::Hours(1);
  const GroupTrace trace = PutTogether({a, b}, true);
  EXPECT_EQ(trace.clocks.size(), 1u);
  EXPECT_EQ(trace.calls[0].longest_wait, absl::Microseconds(100));
  for (const TraceRank& rank : trace.ranks) EXPECT_EQ(rank.record.calendar, a.calendar);
}

TEST(GroupTraceTest, ClocksOfSeveralMachinesAreAligned) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    FlightRecord ranks[] = {Rank(0, 4, "a"), Rank(1, 4, "a"), Rank(2, 4, "b"), Rank(3, 4, "c")};
    std::uniform_int_distribution<int64_t> ahead(-5'000'000, 5'000'000);
    const absl::Duration of_b = absl::Microseconds(ahead(random));
    const absl::Duration of_c = absl::Microseconds(ahead(random));
    std::vector<int> last;
    for (int64_t call = 0; call < 50; ++call) {
      // One is late by 200 or more, the others by less than 20.
      last.push_back(static_cast<int>(random() % 4));
      int64_t begins[4];
      for (int64_t& begin : begins) begin = 1000 * call + static_cast<int64_t>(random() % 20);
      begins[last.back()] += 200 + static_cast<int64_t>(random() % 300);
      for (int rank = 0; rank < 4; ++rank) {
        Add(ranks[rank], Collective::kAllReduce, begins[rank],
            begins[last.back()] + 5 + static_cast<int64_t>(random() % 30));
      }
    }
    const std::vector<FlightRecord> shown = {ranks[0], ranks[1], Shown(ranks[2], of_b),
                                             Shown(ranks[3], of_c)};
    const GroupTrace trace = PutTogether(shown, true);
    ASSERT_EQ(trace.clocks.size(), 3u);
    EXPECT_EQ(trace.contradiction, 0);
    EXPECT_NEAR(trace.clocks[1].estimate.ahead, absl::ToDoubleNanoseconds(of_b), 20'000);
    EXPECT_NEAR(trace.clocks[2].estimate.ahead, absl::ToDoubleNanoseconds(of_c), 20'000);
    for (size_t i = 0; i < last.size(); ++i) {
      EXPECT_EQ(trace.calls[i].last, last[i]) << i;
      EXPECT_TRUE(trace.calls[i].certain) << i;
    }
    const GroupTrace raw = PutTogether(shown, false);
    EXPECT_EQ(raw.clocks[1].estimate.ahead, 0);
    EXPECT_EQ(raw.ranks[2].record.calls[0].started, shown[2].calls[0].started);
    EXPECT_FALSE(raw.calls[0].certain) << "the offsets of the clocks are unknown";
  }
}

TEST(GroupTraceTest, NamesTheMissingRanks) {
  FlightRecord a = Rank(0, 3);
  FlightRecord b = Rank(1, 3);
  FlightRecord c = Rank(2, 3);
  for (FlightRecord* const record : {&a, &b, &c}) Add(*record, Collective::kAllReduce, 0, 100);
  LetRun(Add(a, Collective::kAllGather, 200, 0));
  LetRun(Add(b, Collective::kAllGather, 300, 0));
  GroupTrace trace = PutTogether({a, b, c}, true);
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_TRUE(trace.calls[1].open);
  EXPECT_THAT(trace.calls[1].absent, ElementsAre(2));
  EXPECT_FALSE(trace.calls[1].last.has_value()) << "it will be rank 2";
  EXPECT_FALSE(trace.calls[0].open);
  EXPECT_THAT(trace.calls[0].absent, IsEmpty());

  // A rank whose record was read before the call is not reported as late.
  c.taken = kStart + absl::Microseconds(150);
  trace = PutTogether({a, b, c}, true);
  EXPECT_THAT(trace.calls[1].absent, IsEmpty());

  // A rank that is still in an older generation is not in this call's group.
  c.taken = a.taken;
  FlightRecord older = c;
  older.generation = older.calls[0].generation = 1;
  trace = PutTogether({a, b, older}, true);
  ASSERT_EQ(trace.calls.back().number, 2);
  EXPECT_THAT(trace.calls.back().absent, IsEmpty());

  // A call that ended by its deadline also shows which ranks were missing.
  c.taken = a.taken;
  for (FlightRecord* const record : {&a, &b}) {
    record->calls.back().finished = kStart + absl::Seconds(5);
    record->calls.back().state = "DEADLINE_EXCEEDED";
  }
  trace = PutTogether({a, b, c}, true);
  EXPECT_FALSE(trace.calls[1].open);
  EXPECT_THAT(trace.calls[1].absent, ElementsAre(2));

  // Its calls of a generation before have larger numbers.
  FlightCall earlier = c.calls[0];
  earlier.generation = 1;
  earlier.number = 9;
  c.calls.insert(c.calls.begin(), earlier);
  trace = PutTogether({a, b, c}, true);
  ASSERT_EQ(trace.calls.back().number, 2);
  EXPECT_THAT(trace.calls.back().absent, ElementsAre(2));
}

TEST(GroupTraceTest, KnowsWhereRanksCalledDifferentThings) {
  FlightRecord a = Rank(0, 2);
  FlightRecord b = Rank(1, 2);
  Add(a, Collective::kAllReduce, 0, 100).state = "INVALID_ARGUMENT";
  Add(b, Collective::kFail, 90, 100).state = "INVALID_ARGUMENT";
  Add(a, Collective::kAllReduce, 200, 300);
  Add(b, Collective::kAllReduce, 200, 300);
  const GroupTrace trace = PutTogether({a, b}, true);
  EXPECT_TRUE(trace.calls[0].differs);
  EXPECT_FALSE(trace.calls[0].last.has_value());
  EXPECT_FALSE(trace.calls[1].differs);
}

TEST(GroupTraceTest, TransfersAndOtherGenerationsAreNoCallsOfAll) {
  FlightRecord a = Rank(0, 2);
  FlightRecord b = Rank(1, 2);
  Add(a, Collective::kExchange, 0, 10).number = 0;
  Add(a, Collective::kAllReduce, 20, 30);
  Add(b, Collective::kAllReduce, 20, 30);
  Add(b, Collective::kAllReduce, 40, 50).generation = 3;
  b.calls.back().number = 1;
  const GroupTrace trace = PutTogether({a, b}, true);
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_EQ(trace.calls[0].parts.size(), 2u);
  EXPECT_EQ(trace.calls[1].generation, 3);
  EXPECT_EQ(trace.calls[1].parts.size(), 1u);
}

TEST(GroupTraceTest, TheLaterRecordOfARankCounts) {
  FlightRecord old = Rank(0, 1);
  old.generation = 1;
  old.taken += absl::Hours(1);
  EXPECT_EQ(PutTogether({Rank(0, 1), old}, true).ranks[0].record.generation, 2);
  EXPECT_EQ(PutTogether({old, Rank(0, 1)}, true).ranks[0].record.generation, 2);
  EXPECT_THAT(PutTogether({}, true).ranks, IsEmpty());
}

TEST(GroupTraceTest, OnDevicesThatCountsWhichTheyDid) {
  // Rank 0 enqueues far ahead; its device is the last.
  FlightRecord a = Rank(0, 2);
  FlightRecord b = Rank(1, 2);
  const auto on_device = [](FlightCall& call, int64_t from, int64_t to) {
    call.on_stream = true;
    call.device_started = kStart + absl::Microseconds(from);
    call.device_finished = kStart + absl::Microseconds(to);
  };
  on_device(Add(a, Collective::kAllReduce, 0, 1), 500, 520);
  on_device(Add(b, Collective::kAllReduce, 300, 301), 310, 521);
  const GroupTrace trace = PutTogether({a, b}, true);
  EXPECT_EQ(trace.calls[0].last, 0);
  EXPECT_EQ(trace.calls[0].longest_wait, absl::Microseconds(190));
  FlightCall recorded = a.calls[0];
  recorded.device_started.reset();
  EXPECT_FALSE(EndOf(recorded).has_value()) << "that it returned says nothing";
}

// --- As chrome://tracing has it.

TEST(GroupChromeTraceTest, RanksAreProcessesAndArrowsLeadToTheLast) {
  FlightRecord a = Rank(0, 2, "a");
  FlightRecord b = Rank(1, 2, "b");
  a.pid = 17;
  Add(a, Collective::kAllReduce, 0, 110);
  Add(b, Collective::kAllReduce, 100, 111);
  FlightCall& hangs = Add(b, Collective::kAllGather, 200, 0);
  LetRun(hangs);
  hangs.device_started = kStart + absl::Microseconds(210);
  const auto json =
      nlohmann::json::parse(ChromeTrace(PutTogether({a, Shown(b, absl::Hours(1))}, true)));
  std::vector<nlohmann::json> slices, arrows;
  std::map<int, std::string> processes, threads;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
    if (event.contains("id")) arrows.push_back(event);
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
  }
  EXPECT_EQ(processes[1], "rank 0, 17 on host-a");
  EXPECT_EQ(processes.size(), 2u);
  EXPECT_EQ(json["otherData"]["start_unix_ns"], absl::ToUnixNanos(kStart));
  ASSERT_EQ(slices.size(), 4u);
  const auto& first = slices[0];
  EXPECT_EQ(first["ts"], 0);
  EXPECT_EQ(first["args"]["call"], 1);
  EXPECT_EQ(first["args"]["last_rank"], 1);
  EXPECT_EQ(first["args"]["waited_for"], 1);
  EXPECT_GT(first["args"]["waited_us"].get<double>(), 0);
  EXPECT_FALSE(slices[1]["args"].contains("waited_for"));
  EXPECT_EQ(slices[2]["name"], "all_gather (running)");
  EXPECT_EQ(slices[2]["args"]["open"], true);
  EXPECT_THAT(slices[2]["args"]["has_not_come"], ElementsAre(0));
  EXPECT_EQ(slices[2]["pid"], slices[3]["pid"]);
  EXPECT_EQ(threads[slices[3]["tid"]], "device");
  ASSERT_EQ(arrows.size(), 2u);
  EXPECT_EQ(arrows[0]["ph"], "s");
  EXPECT_EQ(arrows[0]["pid"], 1);
  EXPECT_EQ(arrows[1]["ph"], "f");
  EXPECT_EQ(arrows[1]["pid"], 2);
  EXPECT_EQ(arrows[0]["id"], arrows[1]["id"]);
  EXPECT_EQ(arrows[1]["ts"], slices[1]["ts"]);
}

}  // namespace
}  // namespace cohort::client
