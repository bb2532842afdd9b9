// Records a rank's last calls, and the ranks for which it waited, to explain a group that hangs.
#ifndef COHORT_WORKER_GROUP_FLIGHT_RECORDER_FLIGHT_RECORDER_H_
#define COHORT_WORKER_GROUP_FLIGHT_RECORDER_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/collective/collective.h"
#include "base/tensor/data_type.h"
#include "base/threads/mutex.h"
#include "worker/communicator/device_progress.h"
#include "worker/communicator/wait_log.h"
#include "worker/group/flight_recorder/tick_clock.h"

namespace cohort::worker {

// One call. A call on a stream returns at once; it ends when the device has done its work.
struct FlightEntry {
  int64_t sequence = 0;  // of the rank's calls, from 1
  int64_t generation = 0;
  // The number, from 1, among the calls of the generation that all ranks make. The same call has
  // the same number on all ranks. 0: a message, a call that was captured, or a call that was
  // refused without telling the other ranks.
  int64_t number = 0;
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kU8;
  int64_t bytes = 0;                     // of the larger of this rank's input and output
  int root = -1;                         // or the peer of a single transfer; -1: neither
  bool on_stream = false;                // it returns once it is enqueued
  Instant started;                       // steady time
  std::optional<absl::Duration> took;    // absent: it has not returned
  std::optional<absl::StatusCode> code;  // absent: it is not done, here or on the device
  // When the call's work on the device began and ended. Absent: not yet, as far as is known, or the
  // call has no such work. Work that was given up ended at that moment.
  std::optional<Instant> device_started;
  std::optional<Instant> device_ended;
};
// "running", "enqueued", "running on the device", "OK", or the name of the error.
std::string StateOf(const FlightEntry& entry);

// Always on: a call costs two reads of the processor's counter. Keeps the last kEntries calls. One
// thread writes the calls. Any thread writes the device's progress with them. Any thread or process
// reads.
class FlightRecorder final : public DeviceProgress {
 public:
  static constexpr size_t kEntries = 1024;

  // The layout of a record; it begins as zeros.
  struct Memory;
  static size_t MemoryBytes();

  // Uses memory of its own, or `memory`, which others may read too. `memory` has MemoryBytes()
  // bytes at a multiple of 64; its contents do not matter.
  explicit FlightRecorder(std::shared_ptr<void> memory = nullptr);

  // A call begins at `ticks` of TickClock.
  void Begin(int64_t generation, Collective collective, DataType type, int64_t bytes, int root,
             int64_t ticks, bool on_stream = false);
  // Ends the call that began last.
  void End(absl::StatusCode code);
  // Removes the call that began last from the calls that all ranks make: the next call gets its
  // number.
  void TakeNumberBack();

  // DeviceProgress; Put is for the call that began last. Progress of calls that are no longer kept
  // is dropped.
  int64_t Put() override;
  void Begun(int64_t call, Instant at) override;
  void Done(int64_t call, Instant began, Instant ended) override;
  void GivenUp(int64_t call, absl::StatusCode why, Instant at) override;

  // The log of waits, in the same memory.
  WaitLog& waits();

  std::vector<FlightEntry> Read() const { return Read(memory_.get()); }
  // Reads memory that another process may write: skips entries that are invalid. Oldest first.
  static std::vector<FlightEntry> Read(const void* memory);
  std::vector<WaitedFor> ReadWaits(int size, size_t most) const {
    return ReadWaits(memory_.get(), size, most);
  }
  static std::vector<WaitedFor> ReadWaits(const void* memory, int size, size_t most);

 private:
  static constexpr int64_t kRunning = -1;

  struct alignas(64) Line {
    std::atomic<int64_t> sequence;  // 0: empty, or being written
    std::atomic<int64_t> generation;
    std::atomic<uint64_t> what;  // type, collective, stream and root, from the lowest bits on
    std::atomic<int64_t> number;
    std::atomic<int64_t> bytes;
    std::atomic<int64_t> started;  // in ticks
    std::atomic<int64_t> took;     // in ticks
    std::atomic<int64_t> ended;    // a status code
  };
  // The device's progress with the call of the line at the same index, if both have the same
  // sequence number. It is separate because most calls need none.
  struct alignas(64) DeviceLine {
    std::atomic<int64_t> sequence;  // as Line's
    std::atomic<int64_t> left;      // operations on the device that are not done
    std::atomic<int64_t> began;     // nanoseconds of the steady clock; 0: not yet
    std::atomic<int64_t> ended;     // when the last of them ended
    std::atomic<int64_t> code;      // why one was given up, or OK
  };

  // Null: the line belongs to another call.
  DeviceLine* FindDeviceLine(int64_t call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_mutex_);
  static void ReadDevice(const DeviceLine& line, FlightEntry& entry);

  const std::shared_ptr<void> memory_;
  Line* const lines_;
  static constexpr int kCollectiveBits = 8;
  static constexpr int kStreamBits = 16;
  static constexpr int kRootBits = 32;

  int64_t sequence_ = 0;
  int64_t generation_ = 0;
  int64_t number_ = 0;  // of the generation's last call that all ranks make
  Mutex device_mutex_;  // writers of device lines
  DeviceLine* const device_lines_ ABSL_PT_GUARDED_BY(device_mutex_);
};

struct FlightRecorder::Memory {
  // Both clocks were read at the same moment; they convert ticks into time.
  alignas(64) std::atomic<int64_t> first_ticks;
  std::atomic<int64_t> first_nanoseconds;
  Line lines[kEntries];
  DeviceLine device_lines[kEntries];
  WaitLog waits;
};

inline WaitLog& FlightRecorder::waits() { return static_cast<Memory*>(memory_.get())->waits; }

inline std::vector<WaitedFor> FlightRecorder::ReadWaits(const void* memory, int size, size_t most) {
  return static_cast<const Memory*>(memory)->waits.Read(size, most);
}

inline size_t FlightRecorder::MemoryBytes() { return sizeof(Memory); }

inline void FlightRecorder::Begin(int64_t generation, Collective collective, DataType type,
                                  int64_t bytes, int root, int64_t ticks, bool on_stream) {
  constexpr std::memory_order kRelease = std::memory_order_release;
  if (generation != generation_) {
    generation_ = generation;
    number_ = 0;
  }
  Line& line = lines_[static_cast<size_t>(++sequence_) % kEntries];
  // A reader that sees any later store then also sees that the entry has changed.
  line.sequence.store(0, std::memory_order_relaxed);
  line.generation.store(generation, kRelease);
  line.what.store(
      uint64_t{static_cast<uint32_t>(root)} << kRootBits | uint64_t{on_stream} << kStreamBits |
          static_cast<uint64_t>(collective) << kCollectiveBits | static_cast<uint64_t>(type),
      kRelease);
  line.number.store(collective == Collective::kExchange ? 0 : ++number_, kRelease);
  line.bytes.store(bytes, kRelease);
  line.started.store(ticks, kRelease);
  line.ended.store(kRunning, kRelease);
  line.sequence.store(sequence_, kRelease);
}

inline void FlightRecorder::End(absl::StatusCode code) {
  Line& line = lines_[static_cast<size_t>(sequence_) % kEntries];
  line.took.store(TickClock::Ticks() - line.started.load(std::memory_order_relaxed),
                  std::memory_order_release);
  line.ended.store(static_cast<int64_t>(code), std::memory_order_release);
}

inline void FlightRecorder::TakeNumberBack() {
  Line& line = lines_[static_cast<size_t>(sequence_) % kEntries];
  if (line.number.exchange(0, std::memory_order_acq_rel) != 0) --number_;
}

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_FLIGHT_RECORDER_FLIGHT_RECORDER_H_
