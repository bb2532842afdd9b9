// The receiver of a reply of the engine.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_REPLY_SINK_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_REPLY_SINK_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/framed_rpc/reply_batch.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/codec/encode.h"

namespace cohort::coordinator {

// The state that the replies of one batch share while one thread delivers them.
struct DeliveryContext {
  Instant now;
  EncodeCache cache;
  // Flushed when all have been delivered.
  framed_rpc::ReplyBatch batch;
};

class ReplySink {
 public:
  // Runs exactly once for each submitted call, unless Engine::Cancel returned true for it. It runs
  // on any thread, without a lock of the engine, perhaps inside Engine::Submit. It must not block.
  // The sink may destroy itself.
  virtual void OnReply(Reply&& reply, DeliveryContext& context) = 0;
  // Whether the caller may still have the answer for which it waits. Under a lock of the engine:
  // must not call it. Errors: PERMISSION_DENIED.
  virtual absl::Status CheckRights() { return absl::OkStatus(); }
  // Whether the answer is in vain: its caller has gone, or its deadline has passed. Called inside
  // Engine::Submit, without a lock of the engine.
  virtual bool IsInVain() { return false; }

 protected:
  ~ReplySink() = default;
};

// A reply and its receiver.
struct Answer {
  ReplySink* sink = nullptr;
  Reply reply;
};
using Answers = std::vector<Answer>;

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_REPLY_SINK_H_
