// A client's streams and the worker's, in one order: for one rank.
#ifndef COHORT_WORKER_SERVICE_STREAM_ORDER_H_
#define COHORT_WORKER_SERVICE_STREAM_ORDER_H_

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
#include "base/mutex.h"
#include "cohort/v1/worker.pb.h"
#include "worker/group/shared_gpu.h"
#include "worker/service/tensor_table.h"

namespace cohort::worker {

// As StreamOrder of worker.proto has it. The group whose calls these are ends first, after Release.
// Thread-safe.
class StreamOrder {
 public:
  // `patience`: how long the destructor waits.
  explicit StreamOrder(std::shared_ptr<SharedGpu> gpu, absl::Duration patience = absl::Seconds(5))
      : gpu_(std::move(gpu)), patience_(patience) {}
  // Whose calls these are, in words of errors and of the log. Before the first, and when the rank
  // has another number.
  void NameRank(const std::string& group, int rank);
  // Waits for what is enqueued; what is then still in use is never freed.
  ~StreamOrder();

  // What a call's tensors live by, until it is done.
  using Owners = std::vector<std::shared_ptr<const void>>;
  // `body` enqueues the call on the stream that it is given. `flags` is the memory that the order
  // names, always the same. Errors: INVALID_ARGUMENT (no such memory, or a number that is none of
  // the next), DEADLINE_EXCEEDED (the client's stream has too much before it), ABORTED (released),
  // those of CUDA and of `body`.
  absl::Status Run(const TensorMemory& flags, const v1::StreamOrder& order, Instant deadline,
                   absl::FunctionRef<absl::Status(void* stream, Owners* owners)> body);
  // Lets go of tensors of calls that are done. Does not wait for calls.
  void Sweep();

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

  // What is enqueued on the stream may use all of it.
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

  // Of this order, and not of what a call does: says whose.
  absl::Status Named(const absl::Status& status) const;
  absl::StatusOr<Shared*> Prepare(const TensorMemory& flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::StatusOr<std::unique_ptr<Shared>> NewShared(const TensorMemory& flags) const;
  absl::Status AwaitRoom(Instant deadline);
  // How many calls are not done.
  size_t ForgetDone();

  const std::shared_ptr<SharedGpu> gpu_;
  const absl::Duration patience_;
  Mutex call_mutex_;
  uint64_t last_ ABSL_GUARDED_BY(call_mutex_) = 0;
  uint64_t enqueued_ ABSL_GUARDED_BY(call_mutex_) = 0;  // the last that sets the flags
  // Beside calls that wait.
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(call_mutex_);
  std::string group_ ABSL_GUARDED_BY(mutex_);
  int rank_ ABSL_GUARDED_BY(mutex_) = -1;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Shared> shared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_STREAM_ORDER_H_
