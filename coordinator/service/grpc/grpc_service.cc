#include "coordinator/service/grpc/grpc_service.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/grpc/blob_download_stream.h"
#include "coordinator/service/grpc/blob_upload_stream.h"
#include "coordinator/service/grpc/unary_call.h"
#include "coordinator/service/grpc/watch_server_stream.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"

namespace cohort::coordinator {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;
using Context = grpc::CallbackServerContext;
using UnaryHandler = grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>;
using ReadStreamHandler = grpc::internal::CallbackClientStreamingHandler<ByteBuffer, ByteBuffer>;
using WriteStreamHandler = grpc::internal::CallbackServerStreamingHandler<ByteBuffer, ByteBuffer>;

RpcMethod::RpcType TypeOf(Method method) {
  switch (method) {
    case Method::kUpload:
      return RpcMethod::CLIENT_STREAMING;
    case Method::kDownload:
    case Method::kWatchGroup:
    case Method::kWatch:
      return RpcMethod::SERVER_STREAMING;
    default:
      return RpcMethod::NORMAL_RPC;
  }
}

// gRPC owns the handler.
grpc::internal::MethodHandler* MakeHandler(Method method, Dispatcher& dispatcher) {
  switch (method) {
    case Method::kUpload:
      return new ReadStreamHandler([&dispatcher](Context* context, ByteBuffer* response) {
        return BlobUploadStream::Start(dispatcher, context, response);
      });
    case Method::kDownload:
      return new WriteStreamHandler([&dispatcher](Context* context, const ByteBuffer* request) {
        return BlobDownloadStream::Start(dispatcher, context, request);
      });
    case Method::kWatchGroup:
    case Method::kWatch:
      return new WriteStreamHandler(
          [&dispatcher, method](Context* context, const ByteBuffer* request) {
            return WatchServerStream::Start(dispatcher, method, context, request);
          });
    default:
      return new UnaryHandler(
          [&dispatcher, method](Context* context, const ByteBuffer* request, ByteBuffer* response) {
            return UnaryCall::Start(dispatcher, method, context, request, response);
          });
  }
}

}  // namespace

GrpcService::GrpcService(absl::string_view name, Dispatcher& dispatcher) {
  for (size_t i = 0; i < kMethodCount; ++i) {
    const MethodInfo& info = GetMethod(static_cast<Method>(i));
    if (info.service != name) continue;
    const int index = static_cast<int>(paths_.size());
    const std::string& path = paths_.emplace_back(absl::StrCat("/", info.path()));
    AddMethod(new grpc::internal::RpcServiceMethod(path.c_str(), TypeOf(info.method), nullptr));
    MarkMethodRawCallback(index, MakeHandler(info.method, dispatcher));
  }
}

}  // namespace cohort::coordinator
