#include "worker/group/flight_recorder.h"

#include <algorithm>

namespace cohort::worker {

FlightRecorder::FlightRecorder()
    : first_ticks_(Ticks()),
      first_instant_(Clock::Steady().Now()),
      lines_(std::make_unique<Line[]>(kEntries)) {}

std::vector<FlightEntry> FlightRecorder::Read() const {
  // How long a tick is, by all the time since the recorder began.
  const auto ticks = static_cast<double>(std::max<int64_t>(Ticks() - first_ticks_, 1));
  const double nanoseconds =
      absl::ToDoubleNanoseconds(Clock::Steady().Now() - first_instant_) / ticks;
  std::vector<FlightEntry> entries;
  for (size_t i = 0; i < kEntries; ++i) {
    const Line& line = lines_[i];
    FlightEntry entry;
    entry.sequence = line.sequence.load(std::memory_order_acquire);
    if (entry.sequence == 0) continue;
    const int64_t ended = line.ended.load(std::memory_order_acquire);
    entry.generation = line.generation.load(std::memory_order_acquire);
    const uint64_t what = line.what.load(std::memory_order_acquire);
    entry.verb = static_cast<TensorVerb>(what >> 8);
    entry.type = static_cast<DataType>(what & 0xFF);
    entry.root = static_cast<int>(line.root.load(std::memory_order_acquire));
    entry.bytes = line.bytes.load(std::memory_order_acquire);
    entry.started = absl::FromUnixNanos(line.started.load(std::memory_order_acquire));
    const int64_t took = line.ticks.load(std::memory_order_acquire);
    if (ended != kRunning) {
      entry.code = static_cast<absl::StatusCode>(ended);
      entry.took = absl::Nanoseconds(static_cast<double>(took) * nanoseconds);
    }
    // Written anew meanwhile: what was read is of two calls.
    if (line.sequence.load(std::memory_order_relaxed) != entry.sequence) continue;
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.sequence < b.sequence; });
  return entries;
}

}  // namespace cohort::worker
