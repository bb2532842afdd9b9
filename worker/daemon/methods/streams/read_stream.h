// The stream of ReadTensor: sends a tensor in parts, at the pace of the client.
#ifndef COHORT_WORKER_DAEMON_METHODS_STREAMS_READ_STREAM_H_
#define COHORT_WORKER_DAEMON_METHODS_STREAMS_READ_STREAM_H_

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
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/sessions/session_table.h"
#include "worker/daemon/tensors/tensor_table.h"

namespace cohort::worker {

// Holds no thread while it waits for the client. Owns itself until gRPC calls OnDone.
class ReadStream final : public grpc::ServerWriteReactor<v1::ReadTensorResponse>,
                         public IdleStreamWatch::Stream {
 public:
  // Parts have at most `part_bytes`.
  static grpc::ServerWriteReactor<v1::ReadTensorResponse>* Start(
      grpc::CallbackServerContext* context, const v1::ReadTensorRequest* request,
      int64_t part_bytes, const Caller& caller, SessionTable& sessions, CallGate& gate,
      IdleStreamWatch& watch);

  ~ReadStream() override;

  void OnWriteDone(bool ok) override;
  void OnDone() override;
  // Cancels the call: a status would queue behind the parts that the client does not take.
  void OnIdle(absl::Duration limit) override;

 private:
  ReadStream(grpc::CallbackServerContext* context, int64_t part_bytes, IdleStreamWatch& watch)
      : context_(context), part_bytes_(part_bytes), watch_(watch) {}
  absl::Status Begin(const v1::ReadTensorRequest& request, const Caller& caller,
                     SessionTable& sessions, CallGate& gate);
  // Sends the next part, or ends the call.
  void Continue();
  // Answers the call; runs once.
  void End(const absl::Status& status);

  grpc::CallbackServerContext* const context_;
  const int64_t part_bytes_;
  IdleStreamWatch& watch_;
  std::shared_ptr<ReadStream> self_;  // until OnDone
  std::shared_ptr<Session> session_;
  std::optional<CallGate::Pass> pass_;
  HeldQuota memory_of_parts_;
  bool without_room_ = false;  // for its parts
  TensorMemory memory_;
  const char* at_ = nullptr;
  int64_t left_ = 0;
  v1::ReadTensorResponse part_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has the status, and may free the context
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_STREAMS_READ_STREAM_H_
