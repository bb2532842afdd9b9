// Objects, rounds and barriers: the gRPC service of proto/cohort/v1/messaging.proto.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_MESSAGING_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_MESSAGING_SERVICE_H_

#include "cohort/v1/messaging.grpc.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Every method as bytes in and bytes out: answers to many are serialised once and shared.
using RawMessagingService = v1::MessagingService::WithRawCallbackMethod_Send<
    v1::MessagingService::WithRawCallbackMethod_Receive<
        v1::MessagingService::WithRawCallbackMethod_Broadcast<
            v1::MessagingService::WithRawCallbackMethod_AllGather<
                v1::MessagingService::WithRawCallbackMethod_Gather<
                    v1::MessagingService::WithRawCallbackMethod_Scatter<
                        v1::MessagingService::WithRawCallbackMethod_Barrier<
                            v1::MessagingService::WithRawCallbackMethod_CancelBarrier<
                                v1::MessagingService::WithRawCallbackMethod_Expire<
                                    v1::MessagingService::WithRawCallbackMethod_Stats<
                                        v1::MessagingService::WithRawCallbackMethod_Upload<
                                            v1::MessagingService::WithRawCallbackMethod_Download<
                                                v1::MessagingService::Service>>>>>>>>>>>>;

// Thread-safe; outlives the server it is registered with.
class MessagingService final : public RawMessagingService {
 public:
  explicit MessagingService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* Send(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Receive(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Broadcast(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AllGather(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Gather(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Scatter(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CancelBarrier(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Expire(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;

 private:
  Dispatcher& dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_MESSAGING_SERVICE_H_
