// The one thread on which a process hears of the processes at the other ends of its queues.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_QUEUE_LOOP_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_QUEUE_LOOP_H_

#include <memory>

#include "base/lane/event_loop.h"

namespace cohort::parallel {

// Lives as long as somebody holds it, who must not let it go on its own thread.
std::shared_ptr<lane::EventLoop> QueueLoop();

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_QUEUE_LOOP_H_
