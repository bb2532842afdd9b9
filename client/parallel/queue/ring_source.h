// The records of a ring that lies in this process's memory.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_SOURCE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "client/parallel/queue/byte_source.h"
#include "client/parallel/queue/ring_memory.h"

namespace cohort::parallel {

class RingSource final : public ByteSource {
 public:
  // From where the page's head is on. `writer` as people call it.
  RingSource(std::shared_ptr<RingMemory> ring, std::shared_ptr<PageMemory> page,
             std::string writer);

  absl::string_view Peek() override;
  void Release(uint64_t bytes, uint64_t values) override;
  absl::Status Await(uint64_t bytes, const Patience& patience) override;
  void Stop(const absl::Status& reason) override;
  // The writer knows by the connection alone: see LocalReader.
  void Leave(absl::string_view) override {}
  std::string path() const override { return "shared memory"; }

  // From any thread: nobody writes any more, for `why`. What is there can still be read.
  void WriterGone(const std::string& why);
  // From any thread: the writer waits for this reader no more, for `why`. Nothing is read any more.
  void LetGo(absl::string_view why);

 private:
  RingHeader& header() const { return ring_->header(); }
  bool IsThere(uint64_t position) const {
    return header().tail.load(std::memory_order_seq_cst) >= position;
  }
  // No more comes, or nobody wants it.
  bool IsOver() const {
    return header().ended.load(std::memory_order_seq_cst) != 0 ||
           writer_gone_.load(std::memory_order_seq_cst) || stopped_.load(std::memory_order_seq_cst);
  }
  // For a while; and a while longer whenever something came meanwhile, so that the pieces of a
  // large value wake its reader once. Not long beyond the deadline.
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

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_SOURCE_H_
