// A session's tensors, by number.
#ifndef COHORT_WORKER_DAEMON_TENSORS_TENSOR_TABLE_H_
#define COHORT_WORKER_DAEMON_TENSORS_TENSOR_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/threads/mutex.h"

namespace cohort::worker {

// Bytes that `owner` keeps alive.
struct TensorMemory {
  char* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<const void> owner;
};

// A tensor that is freed lives until the last call that works with it has ended. Thread-safe.
class TensorTable {
 public:
  // Errors: RESOURCE_EXHAUSTED (kMaxTensors), FAILED_PRECONDITION (the session has ended).
  static constexpr size_t kMaxTensors = size_t{1} << 20;
  absl::StatusOr<uint64_t> Add(TensorMemory memory);
  // Errors: NOT_FOUND.
  absl::StatusOr<TensorMemory> Find(uint64_t tensor) const;
  absl::Status Free(uint64_t tensor);
  // Frees all tensors; Add fails from then on.
  void Close();

  int64_t count() const;
  int64_t bytes() const;

 private:
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, TensorMemory> tensors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_TENSORS_TENSOR_TABLE_H_
