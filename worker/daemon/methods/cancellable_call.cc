#include "worker/daemon/methods/cancellable_call.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/threads/thread.h"
#include "worker/daemon/methods/answer.h"

namespace cohort::worker {
namespace {

// Deletes itself in OnDone, which gRPC calls last.
class CancellableCall final : public grpc::ServerUnaryReactor {
 public:
  // `pass` counts for `session`.
  CancellableCall(grpc::CallbackServerContext* context, std::shared_ptr<Session> session,
                  CallGate::Pass pass, CancellableBody body)
      : context_(context),
        session_(std::move(session)),
        pass_(std::move(pass)),
        body_(std::move(body)) {
    const absl::Status started = StartDetachedThread("cohort-call", [this] { Run(); });
    if (!started.ok()) Finish(Answer(context_, started));
  }

  void OnCancel() override {
    cancellation_->Cancel(absl::CancelledError("its caller has cancelled the call, or is gone"));
  }
  void OnDone() override { delete this; }

 private:
  void Run() {
    absl::Status status;
    {
      const client::CancellationScope scope(*cancellation_);
      status = body_(session_, cancellation_);
    }
    Finish(Answer(context_, status));
  }

  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Session> session_;
  const CallGate::Pass pass_;
  const CancellableBody body_;
  const std::shared_ptr<client::Cancellation> cancellation_ =
      std::make_shared<client::Cancellation>();
};

}  // namespace

grpc::ServerUnaryReactor* RunCancellable(grpc::CallbackServerContext* context,
                                         SessionTable& sessions, CallGate& gate,
                                         const Caller& caller, const std::string& session,
                                         CancellableBody body) {
  const auto refuse = [context](const absl::Status& why) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(Answer(context, why));
    return reactor;
  };
  absl::StatusOr<std::shared_ptr<Session>> found = sessions.Find(session, caller);
  if (!found.ok()) return refuse(found.status());
  absl::StatusOr<CallGate::Pass> pass = gate.Enter((*found)->calls());
  if (!pass.ok()) return refuse(pass.status());
  return new CancellableCall(context, *std::move(found), *std::move(pass), std::move(body));
}

}  // namespace cohort::worker
