// A receiver for replies that no caller waits for.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_DISCARD_REPLY_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_DISCARD_REPLY_H_

#include "coordinator/core/interface/reply.h"
#include "coordinator/service/engine/reply_sink.h"

namespace cohort::coordinator {

class DiscardReply final : public ReplySink {
 public:
  // It is never destroyed.
  static DiscardReply* Get() {
    static DiscardReply* const discard = new DiscardReply;
    return discard;
  }
  void OnReply(Reply&&, DeliveryContext&) override {}
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_DISCARD_REPLY_H_
