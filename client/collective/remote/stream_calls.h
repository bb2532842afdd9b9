// Calls of a group at a worker, in the order of streams of this process.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_STREAM_CALLS_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_STREAM_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/tensor/tensor.h"
#include "base/threads/mutex.h"
#include "client/collective/remote/gpu.h"
#include "client/collective/remote/worker_session_impl.h"
#include "cohort/v1/worker.pb.h"

namespace cohort::client {

// As StreamOrder of worker.proto has it. Thread-safe.
class StreamCalls {
 public:
  StreamCalls(WorkerSessionImpl& session, std::shared_ptr<Gpu> gpu)
      : session_(session), gpu_(std::move(gpu)) {}
  // Releases streams that still wait for the worker.
  ~StreamCalls() { Release(); }

  // `body` makes the call with that order in its request; no other call is made meanwhile. Errors:
  // FAILED_PRECONDITION (no memory is shared with the worker), ABORTED (released), those of CUDA
  // and of `body`.
  absl::Status Run(void* stream, absl::FunctionRef<absl::Status(const v1::StreamOrder&)> body);

  // Releases all streams that wait for the worker, after it is gone. Never blocks.
  void Release();

 private:
  static constexpr int kClientIsThere = 0;
  static constexpr int kCallIsDone = 1;

  absl::StatusOr<StreamFlags*> Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);

  WorkerSessionImpl& session_;
  const std::shared_ptr<Gpu> gpu_;
  Mutex call_mutex_;
  Tensor memory_ ABSL_GUARDED_BY(call_mutex_);
  v1::StreamOrder order_ ABSL_GUARDED_BY(call_mutex_);
  // The stream of the last number that was set, if there is one.
  std::optional<void*> last_stream_ ABSL_GUARDED_BY(call_mutex_);
  uint64_t last_set_ ABSL_GUARDED_BY(call_mutex_) = 0;
  // Beside calls that wait.
  Mutex release_mutex_ ABSL_ACQUIRED_AFTER(call_mutex_);
  bool released_ ABSL_GUARDED_BY(release_mutex_) = false;
  std::unique_ptr<StreamFlags> flags_ ABSL_GUARDED_BY(release_mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_STREAM_CALLS_H_
