// A gRPC service whose methods are rows of coordinator/service/dispatch/method_table.h.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_GRPC_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_GRPC_SERVICE_H_

#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "grpcpp/impl/service_type.h"

namespace cohort::coordinator {

//   GrpcService groups("cohort.v1.GroupService", dispatcher);
//   builder.RegisterService(&groups);
//
// It takes and returns bytes, so that an answer to many callers is serialised once and shared. The
// service classes that protoc generates would need a function for each method, and all of these
// functions would do the same. Thread-safe; outlives the server it is registered with.
class GrpcService final : public grpc::Service {
 public:
  // Has the methods of the table whose service is `name`. `dispatcher` outlives it.
  GrpcService(absl::string_view name, Dispatcher& dispatcher);

 private:
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_GRPC_SERVICE_H_
