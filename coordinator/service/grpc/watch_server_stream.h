// Streams batches of group events or of changes of keys. Each batch is one step of the state
// machine. The stream submits it after the batch before was written, so that a slow reader delays
// only itself.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_WATCH_SERVER_STREAM_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_WATCH_SERVER_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/access/peer_access.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/dispatch/tenant_stream.h"
#include "coordinator/service/engine/reply_sink.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Steps are submitted only from inside gRPC's reactions, during which the object cannot go away.
// Owns itself.
class WatchServerStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                                private ReplySink {
 public:
  // `method` is kWatchGroup or kWatch.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(Dispatcher& dispatcher, Method method,
                                                           grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request);

 private:
  WatchServerStream(Dispatcher& dispatcher, Method method);

  void Begin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request);
  // Submits the next step. Call it only from inside a reaction.
  void Step() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(Call call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing may touch `this` afterwards, unless inside a reaction.
  void CallerWent();
  void Complete(const absl::Status& status);

  void OnReply(Reply&& reply, DeliveryContext& context) override;
  absl::Status CheckRights() override;
  void OnSendInitialMetadataDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Dispatcher& dispatcher_;
  const Method method_;
  const Instant started_;
  std::shared_ptr<PeerAccess> access_;
  std::shared_ptr<const std::atomic<bool>> closing_;  // ListenerPeer::closing
  // The client's identity when it attached: a new policy may give a token another name.
  std::shared_ptr<const std::string> attached_as_;
  Asker asker_;
  Call call_;           // the next step: the decoded call, with the next revision
  int64_t stream_ = 0;  // not 0: attached, or going to be
  bool attaching_ = false;
  bool by_us_ = true;  // the coordinator ends the stream; false: the caller went away
  bool last_ = false;  // the group has closed: the message being written is the last
  grpc::ByteBuffer message_;
  TenantStream tenant_stream_;  // outlives the charges
  SharedCharge charge_;
  SharedCharge output_;  // of `message_`, until the reader's side has taken it

  Mutex mutex_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // for a reply
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  CallHandle handle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_WATCH_SERVER_STREAM_H_
