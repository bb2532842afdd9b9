// The coordinator's calls by framed RPC. A framed RPC server passes their requests to the
// dispatcher.
#ifndef COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_HANDLER_H_
#define COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_HANDLER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/framed_rpc/server/call_handler.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/method_table.h"

namespace cohort::coordinator {

// Other streams, and questions about all groups, use gRPC, because a framed RPC thread serves many
// callers.
bool IsFramedMethod(Method method);

class FramedRpcHandler final : public framed_rpc::CallHandler {
 public:
  // `dispatcher` outlives all calls. `ping_timeout`: see FramedGroupWatch.
  FramedRpcHandler(Dispatcher& dispatcher, absl::Duration ping_timeout);

  // The full names of the methods, for the server.
  std::vector<std::string> MethodNames() const;

  absl::Status Start(const framed_rpc::Request& request) override;
  std::unique_ptr<framed_rpc::UnreadCharge> ChargeUnread(PeerAccess* access) override;

 private:
  Dispatcher& dispatcher_;
  const absl::Duration ping_timeout_;
  std::vector<Method> methods_;  // by their number on the wire
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_HANDLER_H_
