// Membership: the gRPC service of proto/cohort/v1/group.proto.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_GROUP_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_GROUP_SERVICE_H_

#include "cohort/v1/group.grpc.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Every method as bytes in and bytes out: answers to many are serialised once and shared.
using RawGroupService = v1::GroupService::WithRawCallbackMethod_CreateGroup<
    v1::GroupService::WithRawCallbackMethod_Join<v1::GroupService::WithRawCallbackMethod_Leave<
        v1::GroupService::WithRawCallbackMethod_KeepAlive<
            v1::GroupService::WithRawCallbackMethod_GetGroup<
                v1::GroupService::WithRawCallbackMethod_ListGroups<
                    v1::GroupService::WithRawCallbackMethod_ProposeView<
                        v1::GroupService::WithRawCallbackMethod_AckView<
                            v1::GroupService::WithRawCallbackMethod_ReportError<
                                v1::GroupService::WithRawCallbackMethod_AgreeAlive<
                                    v1::GroupService::WithRawCallbackMethod_Vote<
                                        v1::GroupService::WithRawCallbackMethod_CloseGroup<
                                            v1::GroupService::WithRawCallbackMethod_WatchGroup<
                                                v1::GroupService::Service>>>>>>>>>>>>>;

// Thread-safe; outlives the server it is registered with.
class GroupService final : public RawGroupService {
 public:
  explicit GroupService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* CreateGroup(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* KeepAlive(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetGroup(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListGroups(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ProposeView(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AckView(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReportError(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AgreeAlive(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Vote(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CloseGroup(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchGroup(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;

 private:
  Dispatcher& dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_GROUP_SERVICE_H_
