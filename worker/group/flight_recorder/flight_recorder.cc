#include "worker/group/flight_recorder/flight_recorder.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cohort::worker {
namespace {

std::shared_ptr<void> OwnMemory(size_t bytes) {
  constexpr std::align_val_t kLine{64};
  return {operator new(bytes, kLine), [](void* memory) { operator delete(memory, kLine); }};
}

// Another process may have written any number.
absl::StatusCode CodeOf(int64_t written) {
  const bool is_one = written >= static_cast<int64_t>(absl::StatusCode::kOk) &&
                      written <= static_cast<int64_t>(absl::StatusCode::kUnauthenticated);
  return is_one ? static_cast<absl::StatusCode>(written) : absl::StatusCode::kUnknown;
}

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr std::memory_order kAcquire = std::memory_order_acquire;
constexpr std::memory_order kRelease = std::memory_order_release;

}  // namespace

std::string StateOf(const FlightEntry& entry) {
  if (entry.code.has_value()) return absl::StatusCodeToString(*entry.code);
  if (entry.device_started.has_value() && !entry.device_ended.has_value()) {
    return "running on the device";
  }
  return entry.took.has_value() ? "enqueued" : "running";
}

FlightRecorder::FlightRecorder(std::shared_ptr<void> memory)
    : memory_(memory != nullptr ? std::move(memory) : OwnMemory(sizeof(Memory))),
      lines_((new (memory_.get()) Memory())->lines),
      device_lines_(static_cast<Memory*>(memory_.get())->device_lines) {
  auto& header = *static_cast<Memory*>(memory_.get());
  header.first_ticks.store(TickClock::Ticks());
  header.first_nanoseconds.store(absl::ToUnixNanos(Clock::Steady().Now()));
}

int64_t FlightRecorder::Put() {
  MutexLock lock(&device_mutex_);
  DeviceLine& line = device_lines_[static_cast<size_t>(sequence_) % kEntries];
  if (line.sequence.load(kRelaxed) == sequence_) {
    line.left.store(line.left.load(kRelaxed) + 1, kRelease);
    return sequence_;
  }
  line.sequence.store(0, kRelaxed);
  line.left.store(1, kRelease);
  line.began.store(0, kRelease);
  line.ended.store(0, kRelease);
  line.code.store(static_cast<int64_t>(absl::StatusCode::kOk), kRelease);
  line.sequence.store(sequence_, kRelease);
  return sequence_;
}

FlightRecorder::DeviceLine* FlightRecorder::FindDeviceLine(int64_t call) {
  DeviceLine& line = device_lines_[static_cast<size_t>(call) % kEntries];
  return line.sequence.load(kRelaxed) == call ? &line : nullptr;
}

void FlightRecorder::Begun(int64_t call, Instant at) {
  MutexLock lock(&device_mutex_);
  DeviceLine* const line = FindDeviceLine(call);
  if (line == nullptr || line->began.load(kRelaxed) != 0) return;
  line->began.store(absl::ToUnixNanos(at), kRelease);
}

void FlightRecorder::Done(int64_t call, Instant began, Instant ended) {
  MutexLock lock(&device_mutex_);
  DeviceLine* const line = FindDeviceLine(call);
  if (line == nullptr) return;
  // With several operations, the beginning of the first stays.
  if (line->ended.load(kRelaxed) == 0) line->began.store(absl::ToUnixNanos(began), kRelease);
  line->ended.store(absl::ToUnixNanos(ended), kRelease);
  line->left.store(line->left.load(kRelaxed) - 1, kRelease);
}

void FlightRecorder::GivenUp(int64_t call, absl::StatusCode why, Instant at) {
  MutexLock lock(&device_mutex_);
  DeviceLine* const line = FindDeviceLine(call);
  if (line == nullptr) return;
  line->code.store(static_cast<int64_t>(why), kRelease);
  line->ended.store(absl::ToUnixNanos(at), kRelease);
  line->left.store(line->left.load(kRelaxed) - 1, kRelease);
}

void FlightRecorder::ReadDevice(const DeviceLine& line, FlightEntry& entry) {
  if (line.sequence.load(kAcquire) != entry.sequence) return;
  // Read first: a reader that sees no work left then also sees when it ended.
  const int64_t left = line.left.load(kAcquire);
  const int64_t began = line.began.load(kAcquire);
  const int64_t ended = line.ended.load(kAcquire);
  const int64_t code = line.code.load(kAcquire);
  if (line.sequence.load(kRelaxed) != entry.sequence) return;
  if (began != 0) {
    entry.device_started = absl::FromUnixNanos(began);
    if (left == 0) entry.device_ended = absl::FromUnixNanos(ended);
  }
  if (entry.code != absl::StatusCode::kOk) return;
  if (left != 0) {
    entry.code.reset();
  } else {
    entry.code = CodeOf(code);
  }
}

std::vector<FlightEntry> FlightRecorder::Read(const void* memory) {
  const auto& all = *static_cast<const Memory*>(memory);
  // The length of a tick, from all the time since the record began. Unsigned, because another
  // process may have written any number.
  const auto since = [](int64_t now, const std::atomic<int64_t>& first) {
    return static_cast<double>(static_cast<uint64_t>(now) - static_cast<uint64_t>(first.load()));
  };
  const double tick = since(absl::ToUnixNanos(Clock::Steady().Now()), all.first_nanoseconds) /
                      std::max(since(TickClock::Ticks(), all.first_ticks), 1.0);
  const int64_t first_ticks = all.first_ticks.load();
  const Instant first = absl::FromUnixNanos(all.first_nanoseconds.load());
  std::vector<FlightEntry> entries;
  for (size_t at = 0; at < kEntries; ++at) {
    const Line& line = all.lines[at];
    FlightEntry entry;
    entry.sequence = line.sequence.load(kAcquire);
    if (entry.sequence <= 0) continue;
    const int64_t ended = line.ended.load(kAcquire);
    const uint64_t what = line.what.load(kAcquire);
    entry.generation = line.generation.load(kAcquire);
    entry.number = line.number.load(kAcquire);
    entry.bytes = line.bytes.load(kAcquire);
    const int64_t started = line.started.load(kAcquire);
    const int64_t took = line.took.load(kAcquire);
    // The line was rewritten meanwhile: the values are from two calls.
    if (line.sequence.load(kRelaxed) != entry.sequence) continue;
    const int collective = static_cast<uint8_t>(what >> kCollectiveBits);
    const int type = static_cast<uint8_t>(what);
    if (!IsCollective(collective) || !IsDataType(type)) continue;
    const auto since_first =
        static_cast<int64_t>(static_cast<uint64_t>(started) - static_cast<uint64_t>(first_ticks));
    entry.started = first + absl::Nanoseconds(static_cast<double>(since_first) * tick);
    entry.collective = static_cast<Collective>(collective);
    entry.type = static_cast<DataType>(type);
    entry.root = static_cast<int>(what >> kRootBits);
    entry.on_stream = (what >> kStreamBits & 1) != 0;
    if (ended != kRunning) {
      entry.code = CodeOf(ended);
      entry.took = absl::Nanoseconds(static_cast<double>(took) * tick);
    }
    ReadDevice(all.device_lines[at], entry);
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.sequence < b.sequence; });
  return entries;
}

}  // namespace cohort::worker
