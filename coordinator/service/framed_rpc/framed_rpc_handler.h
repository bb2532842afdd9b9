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
#include "coordinator/core/interface/memory_account.h"
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
  // Errors: RESOURCE_EXHAUSTED (max_bytes_held).
  absl::Status ChargeUnread(int64_t before, int64_t bytes) override;

 private:
  Dispatcher& dispatcher_;
  const absl::Duration ping_timeout_;
  // Connections may give their bytes back when the dispatcher is gone.
  const std::shared_ptr<MemoryAccount> account_;
  std::vector<Method> methods_;  // by their number on the wire
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_HANDLER_H_
