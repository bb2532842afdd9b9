// What lies where in the memory of a queue, and how the two sides meet there.
//
//   ring      one page, RingHeader, which the writer alone writes; then `capacity` bytes of records
//   page      one for each reader, ReaderPage; it and the writer write it, no other reader sees it
//
// Positions count bytes since the queue began, and never go back; position p lies at
// (p + shift) % capacity. The shift changes only while nothing is unread, and is stored before the
// tail that follows: so whoever sees bytes to read sees the shift they have, until he has read
// them. Everything is a multiple of kRecordAlign. The writer publishes by moving `tail` (release),
// after the bytes; a reader gives back by moving its `head` (release), after it has read them.
// Bytes from the smallest head to the tail are nobody's to overwrite.
//
// A sleeper says that it sleeps before it looks for the last time; the other side stores before it
// looks for sleepers; all four in the one order of sequential consistency. So nobody sleeps through
// what happens, and nobody is woken who does not sleep.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_LAYOUT_H_

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
  // How many threads of this host look at the queue: with more than processors, nobody spins.
  alignas(kLine) std::atomic<uint32_t> parties;
  // Set behind the last tail and the reason.
  std::atomic<uint32_t> ended;
  uint32_t reason_size;
  char reason[kMaxReason];
};

struct ReaderPage {
  // The reader's. `values`: how many it has read.
  alignas(kLine) std::atomic<uint64_t> head;
  std::atomic<uint64_t> values;
  // The reader sleeps on the event, which whoever wakes it moves.
  alignas(kLine) std::atomic<uint32_t> reader_sleeps;
  std::atomic<uint32_t> reader_event;
  // The head that the writer waits for, kNobody if it does not; it sleeps on the event.
  alignas(kLine) std::atomic<uint64_t> awaited_head;
  std::atomic<uint32_t> writer_event;
};

// In front of the bytes of each record, which end at a multiple of kRecordAlign.
struct RecordHeader {
  enum Kind : uint32_t {
    kWhole = 1,      // a value
    kFirst = 2,      // the first part of one
    kNext = 3,       // the next, as many as it takes
    kAbandoned = 4,  // what is there of a value is not one: its writer gave up
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

// Gives back what lies before `head`, and wakes the writer if it waits for that.
void MoveHead(ReaderPage& page, uint64_t head);
// Wakes who sleeps there, whatever for.
void WakeWriter(ReaderPage& page);
void WakeReader(ReaderPage& page);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_LAYOUT_H_
