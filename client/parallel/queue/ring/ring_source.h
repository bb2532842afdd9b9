// Reads the records of a ring that is mapped into this process.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_SOURCE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/threads/mutex.h"
#include "client/parallel/queue/ring/byte_source.h"
#include "client/parallel/queue/ring/ring_memory.h"

namespace cohort::parallel {

class RingSource : public ByteSource {
 public:
  // Reads from the page's head on. `writer` is the writer's name in errors.
  RingSource(std::shared_ptr<RingMemory> ring, std::shared_ptr<PageMemory> page,
             std::string writer);

  absl::string_view Peek() override;
  void Release(uint64_t bytes, uint64_t values) override;
  absl::Status Await(uint64_t bytes, const WaitLimit& limit) override;
  void Stop(const absl::Status& reason) override;
  // Does nothing: the writer sees that the connection closes (see LocalReader).
  void Leave(absl::string_view) override {}
  std::string path() const override { return "shared memory"; }

  // Any thread may call it: the writer is gone, because of `why`. The bytes in the ring can still
  // be read.
  void WriterGone(const std::string& why);
  // Any thread may call it: the writer let this reader go, because of `why`. It reads no more.
  void LetGo(absl::string_view why);

 private:
  RingHeader& header() const { return ring_->header(); }
  bool IsThere(uint64_t position) const {
    return header().tail.load(std::memory_order_seq_cst) >= position;
  }
  // Whether no more bytes come, or the reader was stopped.
  bool IsOver() const {
    return header().ended.load(std::memory_order_seq_cst) != 0 ||
           writer_gone_.load(std::memory_order_seq_cst) || stopped_.load(std::memory_order_seq_cst);
  }
  // Spins for a while, and longer whenever bytes came meanwhile, so that the pieces of a large
  // value wake the reader once. It ends soon after the deadline.
  void LookOn(uint64_t wanted, Instant deadline) const;
  absl::Status WhyOver() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<RingMemory> ring_;
  const std::shared_ptr<PageMemory> page_;
  const std::string writer_;
  uint64_t position_;
  uint64_t values_ = 0;
  std::atomic<bool> writer_gone_{false};
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  std::string why_gone_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_SOURCE_H_
