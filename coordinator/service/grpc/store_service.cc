#include "coordinator/service/grpc/store_service.h"

#include "coordinator/service/grpc/unary_call.h"
#include "coordinator/service/grpc/watch_server_stream.h"

namespace cohort::coordinator {

grpc::ServerUnaryReactor* StoreService::Put(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kPut, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::Get(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kGet, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::Range(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kRange, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::Delete(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kDelete, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::Add(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kAdd, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::Append(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kAppend, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::QueuePush(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kQueuePush, context, request, response);
}

grpc::ServerUnaryReactor* StoreService::QueuePop(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kQueuePop, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StoreService::Watch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return WatchServerStream::Start(dispatcher_, Method::kWatch, context, request);
}

}  // namespace cohort::coordinator
