#include "coordinator/service/grpc/messaging_service.h"

#include "coordinator/service/grpc/blob_download_stream.h"
#include "coordinator/service/grpc/blob_upload_stream.h"
#include "coordinator/service/grpc/unary_call.h"

namespace cohort::coordinator {

grpc::ServerUnaryReactor* MessagingService::Send(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kSend, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Receive(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kReceive, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Broadcast(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kBroadcast, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::AllGather(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kAllGather, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Gather(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kGather, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Scatter(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kScatter, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Barrier(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kBarrier, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::CancelBarrier(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kCancelBarrier, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Expire(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kExpire, context, request, response);
}

grpc::ServerUnaryReactor* MessagingService::Stats(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return UnaryCall::Start(dispatcher_, Method::kStats, context, request, response);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* MessagingService::Upload(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  return BlobUploadStream::Start(dispatcher_, context, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* MessagingService::Download(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return BlobDownloadStream::Start(dispatcher_, context, request);
}

}  // namespace cohort::coordinator
