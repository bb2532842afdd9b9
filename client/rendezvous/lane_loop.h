// The thread of all lanes of this process.
#ifndef COHORT_CLIENT_RENDEZVOUS_LANE_LOOP_H_
#define COHORT_CLIENT_RENDEZVOUS_LANE_LOOP_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/lane/event_loop.h"

namespace cohort::client {

class LaneLink;

// Starts the threads below unless they run. Errors: RESOURCE_EXHAUSTED (threads, descriptors).
absl::Status StartLaneLoops();
// Lives for ever.
lane::EventLoop& LaneLoop();
// About twice a second, ends the calls on `link` whose time has passed.
void WatchDeadlines(std::weak_ptr<LaneLink> link);
// Runs the blocking steps of connecting a link, such as name lookups, one after the other.
void RunAside(std::function<void()> task);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_LANE_LOOP_H_
