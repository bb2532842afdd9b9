// One framed RPC call on the server.
#ifndef COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_CALL_H_
#define COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_CALL_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/engine/reply_sink.h"

namespace cohort::coordinator {

class FramedRpcConnection;

// Finishes exactly once: with its reply, or with Cancel before the engine has answered. Keeps its
// connection alive, and itself while the engine has it.
class FramedRpcCall final : private ReplySink, public std::enable_shared_from_this<FramedRpcCall> {
 public:
  FramedRpcCall(Dispatcher& dispatcher, std::shared_ptr<FramedRpcConnection> connection,
                uint32_t id, Method method);
  ~FramedRpcCall();

  Instant started() const { return started_; }

  // Both run on the connection's loop, Cancel after Start has returned. `request` is not kept.
  void Start(absl::string_view request, absl::Duration time_left);
  void Cancel();

 private:
  void OnReply(Reply&& reply, DeliveryContext& context) override;
  void Finish(const absl::Status& status, const MessageBytes& message, DeliveryContext* context);

  Dispatcher& dispatcher_;
  const std::shared_ptr<FramedRpcConnection> connection_;
  const uint32_t id_;
  const Method method_;
  const Instant started_;
  CallHandle handle_;
  Asker asker_;
  std::shared_ptr<FramedRpcCall> self_;  // while the engine has it
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_CALL_H_
