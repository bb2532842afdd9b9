// What a rank called last, for whoever asks when nothing moves any more.
#ifndef COHORT_WORKER_GROUP_FLIGHT_RECORDER_H_
#define COHORT_WORKER_GROUP_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/data_type.h"
#include "base/tensor.h"
#include "worker/group/tensor_call.h"

namespace cohort::worker {

// One call.
struct FlightEntry {
  int64_t sequence = 0;  // of the rank's calls, from 1
  int64_t generation = 0;
  TensorVerb verb = TensorVerb::kAllReduce;
  DataType type = DataType::kU8;
  int64_t bytes = 0;  // of this rank's input, or of its output if that is larger
  int root = -1;      // -1: none
  Instant started;    // steady time
  absl::Duration took = absl::InfiniteDuration();  // so far infinite: it is running
  std::optional<absl::StatusCode> code;            // none: it is running
};

// Always on: a call costs two looks at the processor's counter. Keeps the last kEntries. One thread
// writes, any thread reads.
class FlightRecorder {
 public:
  static constexpr size_t kEntries = 1024;

  FlightRecorder();

  // A call begins, at `now`. `input` and `output` are looked at for their sizes.
  void Begin(int64_t generation, TensorVerb verb, DataType type, int64_t bytes, int root,
             Instant now) {
    Line& line = lines_[static_cast<size_t>(++sequence_) % kEntries];
    // Whoever reads any of what follows then sees that it is not the entry that it began to read.
    line.sequence.store(0, std::memory_order_relaxed);
    line.generation.store(generation, std::memory_order_release);
    line.what.store(static_cast<uint64_t>(verb) << 8 | static_cast<uint64_t>(type),
                    std::memory_order_release);
    line.root.store(root, std::memory_order_release);
    line.bytes.store(bytes, std::memory_order_release);
    line.started.store(absl::ToUnixNanos(now), std::memory_order_release);
    line.ticks.store(Ticks(), std::memory_order_release);
    line.ended.store(kRunning, std::memory_order_release);
    line.sequence.store(sequence_, std::memory_order_release);
  }

  // The call that began last has ended.
  void End(absl::StatusCode code) {
    Line& line = lines_[static_cast<size_t>(sequence_) % kEntries];
    line.ticks.store(Ticks() - line.ticks.load(std::memory_order_relaxed),
                     std::memory_order_release);
    line.ended.store(static_cast<int64_t>(code), std::memory_order_release);
  }

  // Oldest first.
  std::vector<FlightEntry> Read() const;

 private:
  static constexpr int64_t kRunning = -1;

  struct alignas(64) Line {
    std::atomic<int64_t> sequence{0};
    std::atomic<int64_t> generation{0};
    std::atomic<uint64_t> what{0};
    std::atomic<int64_t> root{0};
    std::atomic<int64_t> bytes{0};
    std::atomic<int64_t> started{0};
    std::atomic<int64_t> ticks{0};  // at the beginning; at the end, between the two
    std::atomic<int64_t> ended{0};  // a status code
  };

  // Of the processor's counter, which is an eighth of the price of asking for the time.
  static int64_t Ticks() {
#if defined(__x86_64__)
    return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
    return absl::ToUnixNanos(Clock::Steady().Now());
#endif
  }

  const int64_t first_ticks_;
  const Instant first_instant_;
  int64_t sequence_ = 0;
  std::unique_ptr<Line[]> lines_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_FLIGHT_RECORDER_H_
