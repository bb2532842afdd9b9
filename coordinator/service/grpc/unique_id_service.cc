#include "coordinator/service/grpc/unique_id_service.h"

#include "coordinator/service/grpc/unary_call.h"

namespace cohort::coordinator {

grpc::ServerUnaryReactor* UniqueIdService::Publish(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kPublish, context, request, response);
}

grpc::ServerUnaryReactor* UniqueIdService::Fetch(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kFetch, context, request, response);
}

grpc::ServerUnaryReactor* UniqueIdService::ReportInit(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kReportInit, context, request, response);
}

}  // namespace cohort::coordinator
