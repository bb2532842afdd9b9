// Orders the calls of one rank with its client's streams and the worker's stream.
#ifndef COHORT_WORKER_DAEMON_GPU_STREAM_ORDER_H_
#define COHORT_WORKER_DAEMON_GPU_STREAM_ORDER_H_

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "cohort/v1/worker.pb.h"
#include "worker/daemon/tensors/tensor_table.h"
#include "worker/group/shared_gpu/shared_gpu.h"

namespace cohort::worker {

// Implements StreamOrder of worker.proto. Release is called first; then the group whose calls it
// orders ends; then this object. Thread-safe.
class StreamOrder {
 public:
  // `timeout`: how long the destructor waits.
  explicit StreamOrder(std::shared_ptr<SharedGpu> gpu, absl::Duration timeout = absl::Seconds(5))
      : gpu_(std::move(gpu)), timeout_(timeout) {}
  // Names the rank in errors and in the log. Called before the first call, and when the rank has
  // another number.
  void NameRank(const std::string& group, int rank);
  // Waits, at most `timeout`, for enqueued work. Memory that is still in use then is never freed.
  ~StreamOrder();

  // The owners of a call's tensors, kept until the call is done.
  using Owners = std::vector<std::shared_ptr<const void>>;
  // `body` enqueues the call on the stream that it gets. `flags` is the memory that `order` names,
  // the same in all calls. Errors: INVALID_ARGUMENT (unusable memory, or a number that does not
  // follow the last one), DEADLINE_EXCEEDED (the client's stream has too many calls before this
  // one), ABORTED (released), those of CUDA and of `body`.
  absl::Status Run(const TensorMemory& flags, const v1::StreamOrder& order, Instant deadline,
                   absl::FunctionRef<absl::Status(void* stream, Owners* owners)> body);
  // Frees the tensors of calls that are done. Does not wait for calls.
  void Sweep();

  // Lets work continue that waits for the client's stream, because the client is gone. Never
  // blocks.
  void Release();

 private:
  struct InFlight {
    uint64_t number = 0;
    Owners owners;
  };
  // The places of the two flags. The second one has a copy in memory that no client can write.
  static constexpr int kClientIsThere = 0;
  static constexpr int kCallIsDone = 1;
  struct FreePages {
    void operator()(uint64_t* pages) const { std::free(pages); }
  };

  // Enqueued work may use all of its members.
  struct Shared {
    TensorMemory memory;
    std::unique_ptr<uint64_t, FreePages> own_memory;
    std::deque<InFlight> in_flight;
    std::shared_ptr<void> stream;
    std::unique_ptr<client::StreamFlags> own_flags;
    std::unique_ptr<client::StreamFlags> flags;

    uint64_t done() const {
      return __atomic_load_n(own_memory.get() + kCallIsDone, __ATOMIC_ACQUIRE);
    }
  };

  // Adds the rank's name to an error of this order, but not to an error of a call.
  absl::Status Named(const absl::Status& status) const;
  absl::StatusOr<Shared*> Prepare(const TensorMemory& flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::StatusOr<std::unique_ptr<Shared>> NewShared(const TensorMemory& flags) const;
  absl::Status AwaitRoom(Instant deadline);
  // Returns how many calls are not done.
  size_t ForgetDone();

  const std::shared_ptr<SharedGpu> gpu_;
  const absl::Duration timeout_;
  Mutex call_mutex_;
  uint64_t last_ ABSL_GUARDED_BY(call_mutex_) = 0;
  uint64_t enqueued_ ABSL_GUARDED_BY(call_mutex_) = 0;  // the last call that sets the flags
  // Guards the state that other methods read while a call waits.
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(call_mutex_);
  std::string group_ ABSL_GUARDED_BY(mutex_);
  int rank_ ABSL_GUARDED_BY(mutex_) = -1;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Shared> shared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_GPU_STREAM_ORDER_H_
