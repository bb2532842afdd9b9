// Methods for operators: the gRPC service of proto/cohort/v1/admin.proto.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_ADMIN_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_ADMIN_SERVICE_H_

#include "cohort/v1/admin.grpc.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Every method as bytes in and bytes out: answers to many are serialised once and shared.
using RawAdminService = v1::AdminService::WithRawCallbackMethod_WhoIsMissing<
    v1::AdminService::WithRawCallbackMethod_DumpWaits<
        v1::AdminService::WithRawCallbackMethod_Limits<
            v1::AdminService::WithRawCallbackMethod_Drain<
                v1::AdminService::WithRawCallbackMethod_Evict<
                    v1::AdminService::WithRawCallbackMethod_ServerStats<
                        v1::AdminService::Service>>>>>>;

// Thread-safe; outlives the server it is registered with.
class AdminService final : public RawAdminService {
 public:
  explicit AdminService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* WhoIsMissing(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DumpWaits(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Limits(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Evict(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerStats(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;

 private:
  Dispatcher& dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_ADMIN_SERVICE_H_
