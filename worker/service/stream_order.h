// A client's streams and the worker's, in one order: for one rank.
#ifndef COHORT_WORKER_SERVICE_STREAM_ORDER_H_
#define COHORT_WORKER_SERVICE_STREAM_ORDER_H_

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "cohort/v1/worker.pb.h"
#include "worker/group/shared_gpu.h"
#include "worker/service/tensor_table.h"

namespace cohort::worker {

// As StreamOrder of worker.proto has it. The group whose calls these are ends first, after Release.
// Thread-safe.
class StreamOrder {
 public:
  explicit StreamOrder(std::shared_ptr<SharedGpu> gpu) : gpu_(std::move(gpu)) {}
  // Waits for what is enqueued.
  ~StreamOrder() { Release(); }

  // What a call's tensors live by, until it is done.
  using Owners = std::vector<std::shared_ptr<const void>>;
  // `body` enqueues the call on the stream that it is given. `flags` is the memory that the order
  // names, always the same. Errors: INVALID_ARGUMENT (no such memory, or a number again), ABORTED
  // (released), those of CUDA and of `body`.
  absl::Status Run(const TensorMemory& flags, const v1::StreamOrder& order,
                   absl::FunctionRef<absl::Status(void* stream, Owners* owners)> body);

  // The client is gone: what waits for its stream goes on. Never blocks.
  void Release();

 private:
  struct InFlight {
    uint64_t number = 0;
    Owners owners;
  };
  // Of the two flags; the second one is also kept where no client can write it.
  static constexpr int kClientIsThere = 0;
  static constexpr int kCallIsDone = 1;
  struct FreePages {
    void operator()(uint64_t* pages) const { std::free(pages); }
  };

  absl::Status Prepare(const TensorMemory& flags) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  void ForgetDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);

  const std::shared_ptr<SharedGpu> gpu_;
  Mutex call_mutex_;
  // What is enqueued on the stream may use all that is below it.
  TensorMemory memory_ ABSL_GUARDED_BY(call_mutex_);
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(call_mutex_);
  uint64_t last_ ABSL_GUARDED_BY(call_mutex_) = 0;
  std::shared_ptr<void> stream_ ABSL_GUARDED_BY(call_mutex_);
  std::unique_ptr<uint64_t, FreePages> own_memory_ ABSL_GUARDED_BY(call_mutex_);
  std::unique_ptr<client::StreamFlags> own_flags_ ABSL_GUARDED_BY(call_mutex_);
  // Beside calls that wait.
  Mutex release_mutex_ ABSL_ACQUIRED_AFTER(call_mutex_);
  bool released_ ABSL_GUARDED_BY(release_mutex_) = false;
  std::unique_ptr<client::StreamFlags> flags_ ABSL_GUARDED_BY(release_mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_STREAM_ORDER_H_
