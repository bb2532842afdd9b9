// Group commit: steps queue up with their answers, one write makes all of them durable, and then
// the answers are delivered.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_JOURNAL_COMMITTER_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_JOURNAL_COMMITTER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/journal/journal.h"
#include "coordinator/service/engine/engine_observer.h"
#include "coordinator/service/engine/reply_sink.h"

namespace cohort::coordinator {

// Thread-safe. After a write has failed, its answers and all later ones become UNAVAILABLE, because
// memory is then ahead of the disk. Only a restart from the journal recovers.
class JournalCommitter {
 public:
  // `deliver` gets answers in the order of their steps. `on_failure` runs once. Both run on the
  // committer's thread. Only that thread uses `journal` from now on; `observer` may be null.
  // `account` is charged for queued steps (the owners of values charge those).
  JournalCommitter(Journal& journal, MemoryAccount& account, EngineObserver* observer,
                   std::function<void(Answers)> deliver,
                   std::function<void(const absl::Status&)> on_failure);
  // OK: its thread runs. Otherwise no step may be queued. Errors: RESOURCE_EXHAUSTED (threads).
  const absl::Status& status() const { return status_; }
  // Writes and delivers all queued steps.
  ~JournalCommitter();
  JournalCommitter(const JournalCommitter&) = delete;
  JournalCommitter& operator=(const JournalCommitter&) = delete;

  // Queues one step; returns its number (from 1). Answers without records wait for all steps
  // before.
  uint64_t Enqueue(std::vector<Record> records, Answers answers);

  // All steps up to this number are durable.
  uint64_t durable() const { return durable_.load(std::memory_order_acquire); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  struct Batch {
    std::vector<Record> records;
    Answers answers;
    uint64_t last = 0;
    int64_t charged = 0;
  };

  void Run();
  void Commit(Batch batch);

  Journal& journal_;
  MemoryAccount& account_;
  EngineObserver* const observer_;
  const std::function<void(Answers)> deliver_;
  const std::function<void(const absl::Status&)> on_failure_;
  std::atomic<uint64_t> durable_{0};
  std::atomic<bool> failed_{false};
  absl::Status failure_;  // of the committer's thread

  Mutex mutex_;
  CondVar changed_;
  Batch queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_JOURNAL_COMMITTER_H_
