// Keys, counters and queues: the gRPC service of proto/cohort/v1/store.proto.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_STORE_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_STORE_SERVICE_H_

#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Every method as bytes in and bytes out: answers to many are serialised once and shared.
using RawStoreService = v1::StoreService::WithRawCallbackMethod_Put<
    v1::StoreService::WithRawCallbackMethod_Get<v1::StoreService::WithRawCallbackMethod_Range<
        v1::StoreService::WithRawCallbackMethod_Delete<v1::StoreService::WithRawCallbackMethod_Add<
            v1::StoreService::WithRawCallbackMethod_Append<
                v1::StoreService::WithRawCallbackMethod_QueuePush<
                    v1::StoreService::WithRawCallbackMethod_QueuePop<
                        v1::StoreService::WithRawCallbackMethod_Watch<
                            v1::StoreService::Service>>>>>>>>>;

// Thread-safe; outlives the server it is registered with.
class StoreService final : public RawStoreService {
 public:
  explicit StoreService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Range(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Add(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Append(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* QueuePush(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* QueuePop(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

 private:
  Dispatcher& dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_STORE_SERVICE_H_
