#include "worker/group/flight_recorder/flight_recorder.h"

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "worker/group/flight_recorder/flight_export.h"

namespace cohort::worker {
namespace {

Instant Now() { return Clock::Steady().Now(); }

TEST(FlightRecorderTest, ShowsFinishedAndRunningCalls) {
  FlightRecorder recorder;
  const Instant before = Now();
  recorder.Begin(7, Collective::kBroadcast, DataType::kBF16, 4096, 2, TickClock::Ticks());
  while (Now() - before < absl::Milliseconds(2)) std::this_thread::yield();
  recorder.End(absl::StatusCode::kAborted);
  const absl::Duration most = Now() - before;
  recorder.Begin(8, Collective::kAllReduce, DataType::kF32, 8, -1, TickClock::Ticks());

  const std::vector<FlightEntry> entries = recorder.Read();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].sequence, 1);
  EXPECT_EQ(entries[0].generation, 7);
  EXPECT_EQ(entries[0].collective, Collective::kBroadcast);
  EXPECT_EQ(entries[0].type, DataType::kBF16);
  EXPECT_EQ(entries[0].bytes, 4096);
  EXPECT_EQ(entries[0].root, 2);
  EXPECT_LT(absl::AbsDuration(entries[0].started - before), absl::Milliseconds(1));
  EXPECT_EQ(entries[0].code, absl::StatusCode::kAborted);
  ASSERT_TRUE(entries[0].took.has_value());
  // Ticks are not exact over such a short time.
  EXPECT_GT(*entries[0].took, absl::Milliseconds(1));
  EXPECT_LT(*entries[0].took, most * 2);
  EXPECT_EQ(entries[1].sequence, 2);
  EXPECT_FALSE(entries[1].code.has_value());
  EXPECT_FALSE(entries[1].took.has_value());
}

TEST(FlightRecorderTest, CallsOfAllRanksAreCountedInEachGeneration) {
  FlightRecorder recorder;
  const auto call = [&](int64_t generation, Collective collective, bool on_stream = false) {
    recorder.Begin(generation, collective, DataType::kF32, 8, -1, TickClock::Ticks(), on_stream);
    recorder.End(absl::StatusCode::kOk);
    return recorder.Read().back();
  };
  EXPECT_EQ(call(1, Collective::kAllReduce).number, 1);
  EXPECT_EQ(call(1, Collective::kExchange).number, 0) << "of some ranks only";
  EXPECT_EQ(call(1, Collective::kExchangeSizes).number, 2);
  EXPECT_EQ(call(2, Collective::kAllReduce).number, 1);
  EXPECT_FALSE(call(2, Collective::kAllGather).on_stream);
  EXPECT_TRUE(call(2, Collective::kAllGather, /*on_stream=*/true).on_stream);
  EXPECT_EQ(recorder.Read().back().sequence, 6);
  EXPECT_EQ(recorder.Read().back().root, -1);
}

TEST(FlightRecorderTest, LeavesTheProcessWithItsClock) {
  FlightRecorder recorder;
  recorder.Begin(7, Collective::kBroadcast, DataType::kBF16, 4096, 2, TickClock::Ticks());
  recorder.End(absl::StatusCode::kOk);
  recorder.Begin(7, Collective::kAllReduce, DataType::kF32, 8, -1, TickClock::Ticks());
  const std::vector<FlightEntry> entries = recorder.Read();
  const client::FlightRecord record = ExportFlightRecord(entries);
  EXPECT_EQ(record.clock, ExportFlightRecord({}).clock) << "of one machine";
  EXPECT_FALSE(record.clock.empty());
  ASSERT_EQ(record.calls.size(), 2u);
  const client::FlightCall& over = record.calls[0];
  EXPECT_EQ(over.collective, Collective::kBroadcast);
  EXPECT_EQ(over.number, 1);
  EXPECT_EQ(over.started - record.calendar, entries[0].started);
  EXPECT_EQ(over.finished, over.started + *entries[0].took);
  EXPECT_EQ(over.state, "OK");
  EXPECT_FALSE(record.calls[1].finished.has_value());
  EXPECT_LE(record.calls[1].started, record.taken + absl::Milliseconds(1));
}

TEST(FlightRecorderTest, AnEnqueuedCallIsOverWhenTheDeviceIsDone) {
  FlightRecorder recorder;
  const auto last = [&] { return recorder.Read().back(); };
  const auto begin = [&] {
    recorder.Begin(1, Collective::kAllReduce, DataType::kF32, 8, -1, TickClock::Ticks());
  };
  begin();
  EXPECT_EQ(StateOf(last()), "running");
  EXPECT_EQ(recorder.Put(), 1);
  EXPECT_EQ(recorder.Put(), 1) << "of the same call";
  recorder.End(absl::StatusCode::kOk);
  EXPECT_EQ(StateOf(last()), "enqueued");
  EXPECT_TRUE(last().took.has_value());
  const Instant start = Now();
  recorder.Begun(1, start + absl::Microseconds(7));
  EXPECT_EQ(StateOf(last()), "running on the device");
  EXPECT_EQ(last().device_started, start + absl::Microseconds(7));
  recorder.Done(1, start, start + absl::Microseconds(9));
  EXPECT_EQ(last().device_started, start);
  EXPECT_EQ(StateOf(last()), "running on the device") << "half of it is done";
  EXPECT_FALSE(last().device_ended.has_value());
  recorder.Begun(1, start + absl::Microseconds(10));
  recorder.Done(1, start + absl::Microseconds(10), start + absl::Microseconds(20));
  EXPECT_EQ(StateOf(last()), "OK");
  EXPECT_EQ(last().device_started, start);
  EXPECT_EQ(last().device_ended, start + absl::Microseconds(20));

  begin();
  EXPECT_EQ(recorder.Put(), 2);
  recorder.Begun(2, start);
  EXPECT_EQ(StateOf(last()), "running on the device") << "while its caller waits";
  recorder.GivenUp(2, absl::StatusCode::kAborted, start + absl::Seconds(1));
  recorder.End(absl::StatusCode::kOk);
  EXPECT_EQ(StateOf(last()), "ABORTED");
  EXPECT_EQ(last().device_ended, start + absl::Seconds(1));

  begin();
  recorder.Put();
  recorder.End(absl::StatusCode::kCancelled);
  EXPECT_EQ(StateOf(last()), "CANCELLED") << "as the call itself says";
  begin();
  recorder.End(absl::StatusCode::kOk);
  EXPECT_EQ(StateOf(last()), "OK") << "of the host alone";
  EXPECT_FALSE(last().device_started.has_value());
}

TEST(FlightRecorderTest, DevicesThatComeLateChangeNothingOfOtherCalls) {
  FlightRecorder recorder;
  recorder.Begin(1, Collective::kAllReduce, DataType::kF32, 8, -1, TickClock::Ticks());
  const int64_t first = recorder.Put();
  recorder.End(absl::StatusCode::kOk);
  for (size_t i = 0; i < FlightRecorder::kEntries; ++i) {
    recorder.Begin(1, Collective::kAllReduce, DataType::kF32, 8, -1, TickClock::Ticks());
    recorder.End(absl::StatusCode::kOk);
  }
  recorder.Begun(first, Now());
  EXPECT_FALSE(recorder.Read().back().device_started.has_value());
  const int64_t last = first + static_cast<int64_t>(FlightRecorder::kEntries);
  EXPECT_EQ(recorder.Put(), last);
  recorder.GivenUp(first, absl::StatusCode::kAborted, Now());
  EXPECT_EQ(StateOf(recorder.Read().back()), "enqueued");
}

TEST(TickClockTest, IsALittleBehindTheSteadyClockAndNeverBefore) {
  TickClock clock;
  const Instant end = Now() + absl::Milliseconds(50);
  Instant after;
  do {
    const Instant before = Now();
    const Instant read = clock.JustBefore(TickClock::Ticks());
    after = Now();
    EXPECT_GE(read, before - absl::Microseconds(200));
    EXPECT_LE(read, after);
  } while (after < end);
}

TEST(FlightRecorderTest, KeepsTheLast) {
  FlightRecorder recorder;
  constexpr int64_t kCalls = 3 * FlightRecorder::kEntries + 5;
  for (int64_t i = 0; i < kCalls; ++i) {
    recorder.Begin(1, Collective::kAllReduce, DataType::kF32, i, -1, TickClock::Ticks());
    recorder.End(absl::StatusCode::kOk);
  }
  const std::vector<FlightEntry> entries = recorder.Read();
  ASSERT_EQ(entries.size(), FlightRecorder::kEntries);
  EXPECT_EQ(entries.front().sequence, kCalls - static_cast<int64_t>(entries.size()) + 1);
  EXPECT_EQ(entries.back().sequence, kCalls);
}

TEST(FlightRecorderTest, AConcurrentReaderSeesWholeEntries) {
  FlightRecorder recorder;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 1; !stop; ++i) {
      recorder.Begin(i, Collective::kReduce, DataType::kI8, i, static_cast<int>(i % 1000),
                     TickClock::Ticks());
      recorder.End(absl::StatusCode::kOk);
    }
  });
  for (int i = 0; i < 200; ++i) {
    for (const FlightEntry& entry : recorder.Read()) {
      ASSERT_EQ(entry.bytes, entry.sequence);
      ASSERT_EQ(entry.generation, entry.sequence);
      ASSERT_EQ(entry.root, entry.sequence % 1000);
    }
  }
  stop = true;
  writer.join();
}

TEST(FlightRecorderTest, AnythingInAnothersMemoryIsSurvived) {
  std::mt19937_64 random(1);
  const auto memory = std::make_unique<FlightRecorder::Memory>();
  for (int round = 0; round < 20; ++round) {
    auto* const words = reinterpret_cast<uint64_t*>(memory.get());
    for (size_t i = 0; i < FlightRecorder::MemoryBytes() / sizeof(uint64_t); ++i) {
      words[i] = round % 2 == 0 ? random() : random() % 8;
    }
    for (const FlightEntry& entry : FlightRecorder::Read(memory.get())) {
      EXPECT_FALSE(NameOf(entry.collective).empty());
      EXPECT_FALSE(StateOf(entry).empty() && entry.code.has_value());
    }
  }
}

}  // namespace
}  // namespace cohort::worker
