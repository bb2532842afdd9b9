// The writing end of a ring: puts values in, waits for the slowest reader, and knows who reads.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_WRITER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_WRITER_H_

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
#include "base/mutex.h"
#include "client/parallel/queue/patience.h"
#include "client/parallel/queue/ring_memory.h"

namespace cohort::parallel {

// A reader, as the writer sees it.
class ReaderSeat {
 public:
  ReaderSeat(std::string name, std::string path) : name_(std::move(name)), path_(std::move(path)) {}
  virtual ~ReaderSeat() = default;

  const std::string& name() const { return name_; }  // "rank 3"
  const std::string& path() const { return path_; }  // "shared memory", "stream 10.0.0.4:4123"
  virtual ReaderPage& page() = 0;
  // Its head is set, and what is written from now on is for it. On any thread, once.
  virtual void Admitted() = 0;
  // There is something new for one who said that it sleeps. On any thread.
  virtual void Wake() = 0;
  // The writer waits for it no more, for `why`: so that it is told. On any thread, once.
  virtual void Left(absl::string_view why) = 0;

  bool gone() const { return gone_.load(std::memory_order_seq_cst); }

 private:
  friend class RingWriter;

  const std::string name_;
  const std::string path_;
  std::atomic<bool> gone_{false};
  uint64_t head_ = 0;  // as the writer saw it last
};

// Write by one thread at a time, the rest from any.
class RingWriter {
 public:
  // `alone`: it may write where nobody has come to read.
  RingWriter(std::shared_ptr<RingMemory> ring, bool alone);

  // Returns once the value is in the ring, or its last part is. Errors, with which no reader ever
  // gets the value: DEADLINE_EXCEEDED names who lags and by how much; the reason of a cancellation
  // or of End; ABORTED (all readers are gone; names them); FAILED_PRECONDITION (nobody has come to
  // read; another thread is writing).
  absl::Status Write(absl::string_view value, const Patience& patience);

  // It reads from the next value on.
  void Admit(std::shared_ptr<ReaderSeat> seat) ABSL_LOCKS_EXCLUDED(mutex_);
  // The writer does not wait for it any more.
  void Leave(ReaderSeat& seat, absl::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);
  // No value is written any more; readers hear why once they have read what is there. The first
  // reason stays.
  void End(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool ended() const { return stopped_.load(std::memory_order_seq_cst); }

  const std::shared_ptr<RingMemory>& ring() const { return ring_; }
  uint64_t tail() const { return ring_->header().tail.load(std::memory_order_seq_cst); }
  uint64_t values() const { return values_.load(std::memory_order_relaxed); }

  struct Reader {
    std::string name;
    std::string path;
    uint64_t bytes_behind = 0;
    uint64_t values_behind = 0;
  };
  std::vector<Reader> readers() const ABSL_LOCKS_EXCLUDED(mutex_);
  struct Departure {
    std::string name;
    std::string why;
  };
  std::vector<Departure> departures() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Until `done`, which is asked whenever somebody came, left, or everything ended. Whether it is.
  bool AwaitChange(absl::FunctionRef<bool()> done, const Patience& patience) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum Busy : int { kIdle, kWriting, kTidying };

  absl::Status WritePart(absl::string_view part, const RecordHeader& header,
                         const Patience& patience);
  absl::Status WriteParts(absl::string_view value, const Patience& patience);
  // Until so many bytes are nobody's.
  absl::Status AwaitRoom(uint64_t bytes, const Patience& patience);
  // False: the deadline has passed, or everything ended.
  bool AwaitHead(const std::shared_ptr<ReaderSeat>& seat, uint64_t wanted, const Patience& patience)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads and checks it.
  uint64_t HeadOf(ReaderSeat& seat);
  absl::Status NoRoom(uint64_t bytes, uint64_t wanted, const Patience& patience);
  absl::Status NobodyReads() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WhyStopped() const ABSL_LOCKS_EXCLUDED(mutex_);
  // To the ring's first byte, if all has been read and enough been written since the last time.
  void TurnBack();
  void Publish(uint64_t tail);
  // Who came is let in and who left is let out; as long as nobody writes, who does so himself.
  void Tidy() ABSL_LOCKS_EXCLUDED(mutex_);
  void TidyUnlessWriting() ABSL_LOCKS_EXCLUDED(mutex_);
  void Take(Busy as);
  void WakeSelf() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells AwaitChange.
  void Changed() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<RingMemory> ring_;
  const bool alone_;
  const uint64_t largest_record_;  // of a value that is written as one

  std::atomic<int> busy_{kIdle};
  std::atomic<bool> changed_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> values_{0};

  // Of who is busy.
  uint64_t tail_ = 0;
  uint64_t room_until_ = 0;  // a tail up to which there was room when it was last looked
  uint64_t turn_at_ = 0;     // the next tail to turn back at
  bool abandoned_ = false;   // parts of a value are in the ring that has no last one

  mutable Mutex mutex_;
  mutable CondVar change_;
  mutable uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Changed by who is busy, under the lock too; so he reads them without.
  std::vector<std::shared_ptr<ReaderSeat>> seats_;
  std::vector<std::shared_ptr<ReaderSeat>> coming_ ABSL_GUARDED_BY(mutex_);
  std::vector<Departure> departures_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ReaderSeat> awaited_ ABSL_GUARDED_BY(mutex_);
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  bool any_came_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_WRITER_H_
