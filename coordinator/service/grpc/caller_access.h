// The rights of the client that made a call of gRPC.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_CALLER_ACCESS_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_CALLER_ACCESS_H_

#include <memory>

#include "base/access/peer_access.h"
#include "base/port/peer/access_of_grpc_call.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/server_context.h"

namespace cohort::coordinator {

// Null: there is no access policy, or the client's connection has ended.
inline std::shared_ptr<PeerAccess> AccessOf(const Dispatcher& dispatcher,
                                            const grpc::CallbackServerContext& context) {
  return dispatcher.checks_access() ? AccessOfGrpcCall(context) : nullptr;
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_CALLER_ACCESS_H_
