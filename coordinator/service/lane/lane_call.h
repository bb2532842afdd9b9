// One call on the lane.
#ifndef COHORT_COORDINATOR_SERVICE_LANE_LANE_CALL_H_
#define COHORT_COORDINATOR_SERVICE_LANE_LANE_CALL_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/method.h"
#include "coordinator/service/reply_sink.h"

namespace cohort::coordinator {

class LaneConnection;

// Finishes exactly once: with its reply, or with Cancel before the engine has answered. Keeps its
// connection alive, and itself while the engine has it.
class LaneCall final : private ReplySink, public std::enable_shared_from_this<LaneCall> {
 public:
  LaneCall(Dispatcher& dispatcher, std::shared_ptr<LaneConnection> connection, uint32_t id,
           Method method);
  ~LaneCall();

  Instant started() const { return started_; }

  // Both run on the connection's loop, Cancel after Start has returned. `request` is not kept.
  void Start(absl::string_view request, absl::Duration time_left);
  void Cancel();

 private:
  void OnReply(Reply&& reply, DeliveryContext& context) override;
  void Finish(const absl::Status& status, const MessageBytes& message, DeliveryContext* context);

  Dispatcher& dispatcher_;
  const std::shared_ptr<LaneConnection> connection_;
  const uint32_t id_;
  const Method method_;
  const Instant started_;
  CallHandle handle_;
  Asker asker_;
  std::shared_ptr<LaneCall> self_;  // while the engine has it
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_LANE_LANE_CALL_H_
