// The writing end of a ring: writes values, waits for the slowest reader, and knows the readers.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_WRITER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_WRITER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/threads/mutex.h"
#include "client/parallel/queue/ring/queue_reader.h"
#include "client/parallel/queue/ring/ring_memory.h"
#include "client/parallel/queue/ring/wait_limit.h"

namespace cohort::parallel {

// A reader, as the writer sees it.
class ReaderSlot {
 public:
  ReaderSlot(std::string name, std::string path) : name_(std::move(name)), path_(std::move(path)) {}
  virtual ~ReaderSlot() = default;

  const std::string& name() const { return name_; }  // "rank 3"
  const std::string& path() const { return path_; }  // "shared memory", "stream 10.0.0.4:4123"
  virtual ReaderPage& page() = 0;
  // The slot's head is set, and the reader gets the values from there on. Any thread calls it,
  // once.
  virtual void Admitted() = 0;
  // Wakes a reader that said that it sleeps: there is a new value. Any thread calls it.
  virtual void Wake() = 0;
  // Tells the reader that the writer no longer waits for it, because of `why`. Any thread calls it,
  // once.
  virtual void Left(absl::string_view why) = 0;

  bool gone() const { return gone_.load(std::memory_order_seq_cst); }

 private:
  friend class RingWriter;

  const std::string name_;
  const std::string path_;
  std::atomic<bool> gone_{false};
  uint64_t head_ = 0;  // as the writer saw it last
};

// One thread at a time calls Write; any thread calls the other methods.
class RingWriter {
 public:
  // `alone`: Write is legal without readers.
  RingWriter(std::shared_ptr<RingMemory> ring, bool alone);

  // Returns once the value, or its last part, is in the ring. After an error no reader ever gets
  // the value. Errors: DEADLINE_EXCEEDED (names the readers that lag, and by how much); the reason
  // of a cancellation or of End; ABORTED (all readers are gone; names them); FAILED_PRECONDITION
  // (no reader has come; another thread is writing).
  absl::Status Write(absl::string_view value, const WaitLimit& limit);

  // Adds a reader. It reads from the next value on.
  void Admit(std::shared_ptr<ReaderSlot> slot) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes a reader: the writer no longer waits for it.
  void Leave(ReaderSlot& slot, absl::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the queue: no value is written any more. Readers get the reason once they have read all
  // values. The first reason stays.
  void End(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool ended() const { return stopped_.load(std::memory_order_seq_cst); }

  const std::shared_ptr<RingMemory>& ring() const { return ring_; }
  uint64_t tail() const { return ring_->header().tail.load(std::memory_order_seq_cst); }
  uint64_t values() const { return values_.load(std::memory_order_relaxed); }

  std::vector<QueueReader> readers() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<QueueDeparture> departures() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until `done` is true, and returns whether it is. `done` is asked whenever a reader came
  // or left, or the queue ended.
  bool AwaitChange(absl::FunctionRef<bool()> done, const WaitLimit& limit) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum Busy : int { kIdle, kWriting, kTidying };

  absl::Status WritePart(absl::string_view part, const RecordHeader& header,
                         const WaitLimit& limit);
  absl::Status WriteParts(absl::string_view value, const WaitLimit& limit);
  // Waits until `bytes` after the tail may be overwritten.
  absl::Status AwaitRoom(uint64_t bytes, const WaitLimit& limit);
  // Returns false if the deadline has passed or the queue ended.
  bool AwaitHead(const std::shared_ptr<ReaderSlot>& slot, uint64_t wanted, const WaitLimit& limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads the slot's head and checks it.
  uint64_t HeadOf(ReaderSlot& slot);
  absl::Status NoRoom(uint64_t bytes, uint64_t wanted, const WaitLimit& limit);
  absl::Status NoReaders() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WhyStopped() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Continues at the ring's first byte, if all bytes are read and enough were written since the
  // last time.
  void Rewind();
  void Publish(uint64_t tail);
  // Lets in readers that came and out those that left. While no thread writes, the thread of the
  // reader that came or left calls it.
  void Tidy() ABSL_LOCKS_EXCLUDED(mutex_);
  void TidyUnlessWriting() ABSL_LOCKS_EXCLUDED(mutex_);
  void Take(Busy as);
  void WakeSelf() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells AwaitChange.
  void Changed() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<RingMemory> ring_;
  const bool alone_;
  const uint64_t largest_record_;  // the largest record of a value that is written as one

  std::atomic<int> busy_{kIdle};
  std::atomic<bool> changed_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> values_{0};

  // Only for the thread that set busy_.
  uint64_t tail_ = 0;
  uint64_t room_until_ = 0;  // a tail up to which there was room at the last look
  uint64_t rewind_at_ = 0;   // the tail at which to go back next
  bool abandoned_ = false;   // the ring has parts of a value without its last part

  mutable Mutex mutex_;
  mutable CondVar change_;
  mutable uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  // The thread that set busy_ changes it, under the lock; so that thread reads it without the lock.
  std::vector<std::shared_ptr<ReaderSlot>> slots_;
  std::vector<std::shared_ptr<ReaderSlot>> coming_ ABSL_GUARDED_BY(mutex_);
  std::vector<QueueDeparture> departures_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ReaderSlot> awaited_ ABSL_GUARDED_BY(mutex_);
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  bool any_came_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_WRITER_H_
