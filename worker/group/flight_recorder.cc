#include "worker/group/flight_recorder.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cohort::worker {
namespace {

std::shared_ptr<void> OwnMemory(size_t bytes) {
  constexpr std::align_val_t kLine{64};
  return {operator new(bytes, kLine), [](void* memory) { operator delete(memory, kLine); }};
}

}  // namespace

FlightRecorder::FlightRecorder(std::shared_ptr<void> memory)
    : memory_(memory != nullptr ? std::move(memory) : OwnMemory(sizeof(Memory))),
      lines_((new (memory_.get()) Memory())->lines) {
  auto& header = *static_cast<Memory*>(memory_.get());
  header.first_ticks.store(TickClock::Ticks());
  header.first_nanoseconds.store(absl::ToUnixNanos(Clock::Steady().Now()));
}

std::vector<FlightEntry> FlightRecorder::Read(const void* memory) {
  constexpr std::memory_order kAcquire = std::memory_order_acquire;
  const auto& all = *static_cast<const Memory*>(memory);
  // How long a tick is, by all the time since the record began.
  // Unsigned: what another wrote may be any number.
  const auto since = [](int64_t now, const std::atomic<int64_t>& first) {
    return static_cast<double>(static_cast<uint64_t>(now) - static_cast<uint64_t>(first.load()));
  };
  const double tick = since(absl::ToUnixNanos(Clock::Steady().Now()), all.first_nanoseconds) /
                      std::max(since(TickClock::Ticks(), all.first_ticks), 1.0);
  const int64_t first_ticks = all.first_ticks.load();
  const Instant first = absl::FromUnixNanos(all.first_nanoseconds.load());
  std::vector<FlightEntry> entries;
  for (const Line& line : all.lines) {
    FlightEntry entry;
    entry.sequence = line.sequence.load(kAcquire);
    if (entry.sequence <= 0) continue;
    const int64_t ended = line.ended.load(kAcquire);
    const uint64_t what = line.what.load(kAcquire);
    entry.generation = line.generation.load(kAcquire);
    entry.root = static_cast<int>(line.root.load(kAcquire));
    entry.bytes = line.bytes.load(kAcquire);
    const int64_t started = line.started.load(kAcquire);
    const int64_t took = line.took.load(kAcquire);
    // Written anew meanwhile: what was read is of two calls.
    if (line.sequence.load(std::memory_order_relaxed) != entry.sequence) continue;
    if (!IsTensorVerb(static_cast<int>(what >> 8)) || !IsDataType(static_cast<int>(what & 0xFF))) {
      continue;
    }
    const auto since_first =
        static_cast<int64_t>(static_cast<uint64_t>(started) - static_cast<uint64_t>(first_ticks));
    entry.started = first + absl::Nanoseconds(static_cast<double>(since_first) * tick);
    entry.verb = static_cast<TensorVerb>(what >> 8);
    entry.type = static_cast<DataType>(what & 0xFF);
    if (ended != kRunning) {
      entry.code = static_cast<absl::StatusCode>(ended);
      entry.took = absl::Nanoseconds(static_cast<double>(took) * tick);
    }
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.sequence < b.sequence; });
  return entries;
}

}  // namespace cohort::worker
