// The layout of a queue's memory, and how its two sides synchronise.
//
//   ring      one page, RingHeader, which the writer alone writes; then `capacity` bytes of records
//   page      one for each reader, ReaderPage; the writer and this reader alone write it
//
// Positions count bytes since the queue began and never go back; position p lies at (p + shift) %
// capacity. The shift changes only while no byte is unread, and it is stored before the tail that
// follows. So a reader that sees bytes to read sees their shift, until it has read them. Every
// position is a multiple of kRecordAlign. The writer publishes bytes by moving `tail` (release)
// after it wrote them. A reader gives bytes back by moving its `head` (release) after it has read
// them. The writer never overwrites bytes between the smallest head and the tail.
//
// A thread says that it sleeps before it looks for the last time; the other side stores before it
// looks for sleepers. All four steps are sequentially consistent. So no thread sleeps through an
// event, and no thread that is awake gets a wake-up.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cohort::parallel {

// Two lines, which processors fetch together.
inline constexpr size_t kLine = 128;
inline constexpr size_t kRecordAlign = 16;
inline constexpr uint64_t kNobody = std::numeric_limits<uint64_t>::max();

struct RingHeader {
  static constexpr size_t kMaxReason = 512;

  alignas(kLine) std::atomic<uint64_t> tail;
  std::atomic<uint64_t> shift;  // less than the capacity
  // How many threads of this host use the queue. If they exceed the processors, they do not spin.
  alignas(kLine) std::atomic<uint32_t> parties;
  // Set behind the last tail and the reason.
  std::atomic<uint32_t> ended;
  uint32_t reason_size;
  char reason[kMaxReason];
};

struct ReaderPage {
  // The reader writes these. `values`: how many values it has read.
  alignas(kLine) std::atomic<uint64_t> head;
  std::atomic<uint64_t> values;
  // The reader sleeps on the event; a thread that wakes it changes the event.
  alignas(kLine) std::atomic<uint32_t> reader_sleeps;
  std::atomic<uint32_t> reader_event;
  // The head that the writer waits for, kNobody if it does not wait; the writer sleeps on the
  // event.
  alignas(kLine) std::atomic<uint64_t> awaited_head;
  std::atomic<uint32_t> writer_event;
};

// In front of the bytes of each record, which end at a multiple of kRecordAlign.
struct RecordHeader {
  enum Kind : uint32_t {
    kWhole = 1,      // a value
    kFirst = 2,      // the first part of one
    kNext = 3,       // the next part, as many as the value takes
    kAbandoned = 4,  // the parts so far are not a value: the writer gave up
  };
  uint64_t value_bytes;  // of all parts
  uint32_t part_bytes;   // of this one
  uint32_t kind;
};

static_assert(sizeof(RecordHeader) == kRecordAlign);
static_assert(sizeof(RingHeader) <= 4096 && sizeof(ReaderPage) <= 4096);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr uint64_t RecordBytes(uint64_t part_bytes) {
  return sizeof(RecordHeader) + (part_bytes + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

// Gives back the bytes before `head`, and wakes the writer if it waits for that.
void MoveHead(ReaderPage& page, uint64_t head);
// Wakes the thread that sleeps there, whatever it waits for.
void WakeWriter(ReaderPage& page);
void WakeReader(ReaderPage& page);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_LAYOUT_H_
