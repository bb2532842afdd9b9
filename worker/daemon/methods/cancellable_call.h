// A call that blocks on a thread of its own, and that its caller can cancel.
#ifndef COHORT_WORKER_DAEMON_METHODS_CANCELLABLE_CALL_H_
#define COHORT_WORKER_DAEMON_METHODS_CANCELLABLE_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/rendezvous/call/cancellation.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker {

// `cancellation` is cancelled when the caller has cancelled the call, or is gone. It is that of the
// thread's CancellationScope, too, so it ends waits at the coordinator.
using CancellableBody =
    std::function<absl::Status(const std::shared_ptr<Session>& session,
                               const std::shared_ptr<client::Cancellation>& cancellation)>;

// Runs `body` as a call of `caller` in the session `session`, and answers with its status.
// Errors, as answers: those of SessionTable::Find and CallGate::Enter; RESOURCE_EXHAUSTED (the
// system starts no thread).
grpc::ServerUnaryReactor* RunCancellable(grpc::CallbackServerContext* context,
                                         SessionTable& sessions, CallGate& gate,
                                         const Caller& caller, const std::string& session,
                                         CancellableBody body);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_CANCELLABLE_CALL_H_
