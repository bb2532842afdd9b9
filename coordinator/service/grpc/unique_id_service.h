// Communicator ids: the gRPC service of proto/cohort/v1/unique_id.proto.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_UNIQUE_ID_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_UNIQUE_ID_SERVICE_H_

#include "cohort/v1/unique_id.grpc.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Every method as bytes in and bytes out: answers to many are serialised once and shared.
using RawUniqueIdService = v1::UniqueIdService::WithRawCallbackMethod_Publish<
    v1::UniqueIdService::WithRawCallbackMethod_Fetch<
        v1::UniqueIdService::WithRawCallbackMethod_ReportInit<v1::UniqueIdService::Service>>>;

// Thread-safe; outlives the server it is registered with.
class UniqueIdService final : public RawUniqueIdService {
 public:
  explicit UniqueIdService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* Publish(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Fetch(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReportInit(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  Dispatcher& dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_UNIQUE_ID_SERVICE_H_
