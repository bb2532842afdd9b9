#include "coordinator/service/grpc/admin_service.h"

#include "coordinator/service/grpc/unary_call.h"

namespace cohort::coordinator {

grpc::ServerUnaryReactor* AdminService::WhoIsMissing(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kWhoIsMissing, context, request, response);
}

grpc::ServerUnaryReactor* AdminService::DumpWaits(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kDumpWaits, context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Limits(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kLimits, context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kDrain, context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Evict(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kEvict, context, request, response);
}

grpc::ServerUnaryReactor* AdminService::ServerStats(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kServerStats, context, request, response);
}

}  // namespace cohort::coordinator
