// WatchGroup by framed RPC. Each batch of events is one step of the state machine, which this call
// submits when the client asks for the next part, so that a slow reader delays only itself.
#ifndef COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_GROUP_WATCH_H_
#define COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_GROUP_WATCH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/reply_batch.h"
#include "base/framed_rpc/server/call_handler.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/tenant_stream.h"
#include "coordinator/service/engine/reply_sink.h"

namespace cohort::coordinator {

// Keeps itself alive while the engine has a step of it.
class FramedGroupWatch final : public framed_rpc::ServerCall,
                               private ReplySink,
                               public std::enable_shared_from_this<FramedGroupWatch> {
 public:
  // A client that asks for no next part for `ping_timeout` is gone: its connection is closed. Zero:
  // it may take any time.
  FramedGroupWatch(Dispatcher& dispatcher, const framed_rpc::Request& request,
                   absl::Duration ping_timeout);
  ~FramedGroupWatch() override;

  void Start(const framed_rpc::Request& request);
  bool Cancel() override;
  bool Next() override;
  bool Overdue() override;

 private:
  // The client has a part, and asks for the next one.
  enum class State { kInEngine, kSent, kEnded };

  // On the connection's thread.
  void Step();
  void Submit(Call call) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReply(Reply&& reply, DeliveryContext& context) override;
  absl::Status CheckRights() override;
  // Whether the listener has closed the connection: the end says nothing about the member.
  bool ClosedByUs();
  void OnAttached(const Reply& reply, DeliveryContext& context);
  // `by_us`: the coordinator ends the call, so the end tells nothing about the member.
  void End(const absl::Status& status, bool by_us);
  // Also sends the reply.
  void Finish(const absl::Status& status, bool by_us, framed_rpc::ReplyBatch* batch);

  Dispatcher& dispatcher_;
  const absl::Duration ping_timeout_;
  // These change on the connection's thread, or while the engine has a step.
  Asker asker_;
  Call call_;  // the next step: the decoded call, with the next revision
  std::shared_ptr<const std::string> attached_as_;
  int64_t stream_ = 0;  // not 0: attached, or going to be
  bool attaching_ = false;
  TenantStream tenant_stream_;  // outlives the charge
  SharedCharge charge_;
  CallHandle handle_;
  std::shared_ptr<FramedGroupWatch> self_;  // while the engine has a step

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kInEngine;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Instant sent_at_ ABSL_GUARDED_BY(mutex_);  // the last part, by the engine's clock
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_GROUP_WATCH_H_
