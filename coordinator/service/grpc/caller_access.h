// The rights of the client that made a call of gRPC.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_CALLER_ACCESS_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_CALLER_ACCESS_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "base/access/peer_access.h"
#include "base/port/peer/access_of_grpc_call.h"
#include "base/rpc/client_names.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/server_context.h"

namespace cohort::coordinator {

// Null: there is no access policy, or the client's connection has ended. A caller that names a
// client calls for it (PeerAccess::ForClient). A worker takes no such names from its clients: it
// would pass them on as its own word.
inline std::shared_ptr<PeerAccess> AccessOf(const Dispatcher& dispatcher,
                                            const grpc::CallbackServerContext& context) {
  if (!dispatcher.checks_access()) return nullptr;
  std::shared_ptr<PeerAccess> access = AccessOfGrpcCall(context);
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kClientNamesMetadata);
  if (access == nullptr || found == metadata.end()) return access;
  return access->ForClient(absl::string_view(found->second.data(), found->second.size()));
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_CALLER_ACCESS_H_
