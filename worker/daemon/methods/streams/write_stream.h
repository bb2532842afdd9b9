// The stream of WriteTensor: receives a tensor in parts.
#ifndef COHORT_WORKER_DAEMON_METHODS_STREAMS_WRITE_STREAM_H_
#define COHORT_WORKER_DAEMON_METHODS_STREAMS_WRITE_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/threads/mutex.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/limits/idle_stream_watch.h"
#include "worker/daemon/sessions/session_table.h"
#include "worker/daemon/tensors/tensor_table.h"

namespace cohort::worker {

// Checks that the bytes lie within the tensor. Errors: OUT_OF_RANGE.
absl::Status CheckRange(const TensorMemory& memory, uint64_t offset, uint64_t size);

// Holds no thread while it waits for the client. Owns itself until gRPC calls OnDone.
class WriteStream final : public grpc::ServerReadReactor<v1::WriteTensorRequest>,
                          public IdleStreamWatch::Stream {
 public:
  static grpc::ServerReadReactor<v1::WriteTensorRequest>* Start(
      grpc::CallbackServerContext* context, v1::WriteTensorResponse* response, Caller caller,
      SessionTable& sessions, CallGate& gate, IdleStreamWatch& watch);

  void OnReadDone(bool ok) override;
  void OnDone() override;
  void OnIdle(absl::Duration limit) override;

 private:
  WriteStream(grpc::CallbackServerContext* context, v1::WriteTensorResponse* response,
              Caller caller, SessionTable& sessions, CallGate& gate, IdleStreamWatch& watch);
  absl::Status Take();
  // Finds the tensor of the first part, and counts the call.
  absl::Status Begin();
  // Answers the call; later calls of it have no effect.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::CallbackServerContext* const context_;
  v1::WriteTensorResponse* const response_;
  const Caller caller_;
  SessionTable& sessions_;
  CallGate& gate_;
  IdleStreamWatch& watch_;
  std::shared_ptr<WriteStream> self_;  // until OnDone
  v1::WriteTensorRequest part_;
  // Set by the first part:
  std::shared_ptr<Session> session_;
  std::optional<CallGate::Pass> pass_;
  TensorMemory memory_;
  uint64_t at_ = 0;
  uint64_t written_ = 0;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_STREAMS_WRITE_STREAM_H_
