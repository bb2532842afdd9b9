#include "coordinator/service/grpc/group_service.h"

#include "coordinator/service/grpc/unary_call.h"
#include "coordinator/service/grpc/watch_server_stream.h"

namespace cohort::coordinator {

grpc::ServerUnaryReactor* GroupService::CreateGroup(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kCreateGroup, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::Join(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kJoin, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::Leave(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kLeave, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::KeepAlive(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kKeepAlive, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::GetGroup(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kGetGroup, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::ListGroups(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kListGroups, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::ProposeView(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kProposeView, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::AckView(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kAckView, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::ReportError(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kReportError, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::AgreeAlive(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kAgreeAlive, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::Vote(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kVote, context, request, response);
}

grpc::ServerUnaryReactor* GroupService::CloseGroup(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kCloseGroup, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GroupService::WatchGroup(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return WatchServerStream::Start(dispatcher_, Method::kWatchGroup, context, request);
}

}  // namespace cohort::coordinator
