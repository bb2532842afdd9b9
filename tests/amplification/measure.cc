#include "tests/amplification/measure.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/amplification/process_usage.h"

namespace cohort::amplification {
namespace {

// Calls of the innocent client before the attack begins and after it was sent.
constexpr int kCallsAround = 5;

std::optional<Cell> MeasureOnce(const ProcessUsage& usage, const Message& message, Form form) {
  usage.AwaitQuiet();  // the attack before this one
  usage.ResetPeak();
  const int64_t before = usage.ResidentBytes();
  const absl::Duration processor_before = usage.ProcessorTime();
  std::optional<Sent> sent = message.attack(form);
  if (!sent.has_value()) return std::nullopt;
  usage.AwaitQuiet();
  Cell cell;
  cell.sent_bytes = sent->bytes;
  cell.peak_bytes = usage.PeakBytes();
  cell.grown_bytes = std::max<int64_t>(cell.peak_bytes - before, 0);
  sent.reset();
  usage.AwaitQuiet();
  cell.processor_time = usage.ProcessorTime() - processor_before;
  cell.left_bytes = usage.ResidentBytes() - before;
  return cell;
}

absl::Duration LongestCall(const Subject& subject, const Message& message, Form form) {
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  absl::Duration longest;
  std::thread innocent([&] {
    while (!stop) {
      const Instant begin = Clock::Steady().Now();
      EXPECT_TRUE(subject.innocent_call())
          << subject.protocol << ": a call of another client fails beside " << message.name << ", "
          << NameOf(form);
      if (calls > 0) longest = std::max(longest, Clock::Steady().Now() - begin);
      ++calls;
    }
  });
  const auto await_calls = [&](int more) {
    const int goal = calls + more;
    const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
    while (calls < goal && Clock::Steady().Now() < deadline) poll(nullptr, 0, 1);
  };
  await_calls(kCallsAround);
  {
    const std::optional<Sent> sent = message.attack(form);
    ProcessUsage(subject.daemon).AwaitQuiet(absl::Milliseconds(50));
    await_calls(kCallsAround);
  }
  await_calls(kCallsAround);
  stop = true;
  innocent.join();
  return longest;
}

}  // namespace

const char* NameOf(Form form) {
  switch (form) {
    case Form::kLargest:
      return "largest";
    case Form::kElements:
      return "elements";
    case Form::kUnknown:
      return "unknown fields";
    case Form::kCompressed:
      return "compressed";
    case Form::kRepeated:
      return "repeated";
    case Form::kPartial:
      return "partial";
    case Form::kSilent:
      return "silent";
    case Form::kAbandoned:
      return "abandoned";
  }
  return "?";
}

std::vector<Row> Measure(const Subject& subject, bool measures_delay) {
  const ProcessUsage usage(subject.daemon);
  std::vector<Row> rows;
  for (const Message& message : subject.messages) {
    Row row{subject.protocol, subject.peer, message.name, {}};
    for (const Form form : kForms) {
      std::optional<Cell> cell = MeasureOnce(usage, message, form);
      if (!cell.has_value()) continue;
      if (measures_delay && subject.innocent_call != nullptr) {
        cell->longest_innocent_call = LongestCall(subject, message, form);
      }
      row.cells[form] = *cell;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::amplification
