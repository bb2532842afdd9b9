// The rights of the client that made a call of gRPC.
#ifndef COHORT_BASE_PORT_PEER_ACCESS_OF_GRPC_CALL_H_
#define COHORT_BASE_PORT_PEER_ACCESS_OF_GRPC_CALL_H_

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/access/peer_access.h"
#include "base/port/peer/grpc_peer.h"
#include "base/rpc/token_file.h"
#include "grpcpp/server_context.h"

namespace cohort {

// A bearer token in the call's metadata counts in place of the names of its connection. Null: the
// server has no access policy, or the client's connection has ended.
inline std::shared_ptr<PeerAccess> AccessOfGrpcCall(const grpc::ServerContextBase& context) {
  std::shared_ptr<PeerAccess> access = ClientOfGrpcPeer(context.peer()).access;
  if (access == nullptr) return nullptr;
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find("authorization"); found != metadata.end()) {
    absl::string_view token(found->second.data(), found->second.size());
    if (constexpr absl::string_view kScheme = "Bearer ";
        absl::StartsWithIgnoreCase(token, kScheme)) {
      token.remove_prefix(kScheme.size());
      access = access->WithToken(token.size() > kMaxTokenBytes ? "" : token);
    }
  }
  return access;
}

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_ACCESS_OF_GRPC_CALL_H_
