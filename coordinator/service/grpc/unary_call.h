// One call of a method that has one request and one answer, however long the answer takes.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_UNARY_CALL_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_UNARY_CALL_H_

#include <memory>

#include "base/clock.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/engine/reply_sink.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Finishes exactly once: with its reply, or with a cancellation before the engine has answered. A
// parked call holds no thread and little memory: its request is freed once it is decoded. Owns
// itself until OnDone.
class UnaryCall final : public grpc::ServerUnaryReactor, private ReplySink {
 public:
  // The body of a service's method. `dispatcher` outlives all calls.
  static grpc::ServerUnaryReactor* Start(Dispatcher& dispatcher, Method method,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response);

 private:
  UnaryCall(Dispatcher& dispatcher, Method method, grpc::CallbackServerContext* context,
            grpc::ByteBuffer* response);

  void Handle(const grpc::ByteBuffer* request);
  // Charges the answer, and makes it the response. Errors: RESOURCE_EXHAUSTED (max_bytes_held,
  // max_tenant_bytes_held).
  absl::Status SetResponse(const MessageBytes& message);
  // Nothing may touch `this` afterwards, unless inside a reaction or before Start returns.
  void Complete(const absl::Status& status);

  void OnReply(Reply&& reply, DeliveryContext& context) override;
  absl::Status CheckRights() override;
  bool IsInVain() override;
  void OnCancel() override;
  void OnDone() override;
  // gRPC runs OnDone and OnCancel on the thread that found them due, while this program holds no
  // lock. Otherwise a thread of gRPC frees finished calls, and they pile up on a busy machine.
  bool InternalInlineable() override { return true; }

  Dispatcher& dispatcher_;
  const Method method_;
  const Instant started_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer* const response_;
  // Written before the method returns, and read by OnCancel, which comes after that.
  CallHandle handle_;
  std::shared_ptr<PeerAccess> access_;  // null: there is no access policy
  Asker asker_;
  // Its answer included, until gRPC has sent it: then for the caller's tenant.
  std::shared_ptr<MemoryAccount> account_;
  SharedCharge charge_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_UNARY_CALL_H_
