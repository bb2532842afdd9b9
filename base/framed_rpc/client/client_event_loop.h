// The event loop of all framed RPC connections that this process opens.
#ifndef COHORT_BASE_FRAMED_RPC_CLIENT_CLIENT_EVENT_LOOP_H_
#define COHORT_BASE_FRAMED_RPC_CLIENT_CLIENT_EVENT_LOOP_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/threads/event_loop.h"

namespace cohort::framed_rpc {

class ClientConnection;

// Starts the threads below unless they run. Errors: RESOURCE_EXHAUSTED (threads, descriptors).
absl::Status StartClientEventLoops();
// Lives for ever.
EventLoop& ClientEventLoop();
// About twice a second, ends the calls on `connection` whose time has passed.
void WatchDeadlines(std::weak_ptr<ClientConnection> connection);
// Runs the blocking steps of opening a connection, such as name lookups, one after the other.
void RunAside(std::function<void()> task);

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_CLIENT_CLIENT_EVENT_LOOP_H_
