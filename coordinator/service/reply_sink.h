// Where the engine brings an answer.
#ifndef COHORT_COORDINATOR_SERVICE_REPLY_SINK_H_
#define COHORT_COORDINATOR_SERVICE_REPLY_SINK_H_

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coordinator/core/reply.h"
#include "coordinator/service/codec/encode.h"

namespace cohort::coordinator {

// Output that collects what one batch has for it.
class Corked {
 public:
  virtual ~Corked() = default;
  virtual void Flush() = 0;
};

// What the replies of one batch share while they are delivered, on one thread.
struct DeliveryContext {
  Instant now;
  EncodeCache cache;
  // Flushed when all have been delivered.
  std::vector<std::shared_ptr<Corked>> corked;
};

class ReplySink {
 public:
  // Exactly once for each submitted call, unless Engine::Cancel returned true for it. On any
  // thread, with no lock of the engine held, also from inside Engine::Submit. Must not block. The
  // sink may end its own life.
  virtual void OnReply(Reply&& reply, DeliveryContext& context) = 0;

 protected:
  ~ReplySink() = default;
};

// A reply and whom it is for.
struct Answer {
  ReplySink* sink = nullptr;
  Reply reply;
};
using Answers = std::vector<Answer>;

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_REPLY_SINK_H_
