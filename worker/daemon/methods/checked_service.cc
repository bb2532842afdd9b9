#include "worker/daemon/methods/checked_service.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/rpc/field_count.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace cohort::worker {
namespace {

using grpc::internal::MethodHandler;
using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

using KeptObjects = std::vector<std::shared_ptr<const void>>;
// Those of the call that this thread runs. gRPC's handler of a blocking call returns when the
// answer is sent.
thread_local KeptObjects* t_kept = nullptr;

// Why the request of the call that this thread runs was not parsed.
thread_local absl::Status t_refused;

absl::Status CheckFields(const google::protobuf::Descriptor& type, grpc_byte_buffer* bytes,
                         int most) {
  if (bytes == nullptr) return absl::OkStatus();  // the client has sent no message: parsing tells
  if (grpc_byte_buffer_length(bytes) <= static_cast<size_t>(most)) return absl::OkStatus();
  std::vector<grpc::Slice> slices;
  grpc_byte_buffer_reader reader;
  if (grpc_byte_buffer_reader_init(&reader, bytes) == 0) return absl::OkStatus();  // parsing tells
  for (grpc_slice slice; grpc_byte_buffer_reader_next(&reader, &slice) != 0;) {
    slices.emplace_back(slice, grpc::Slice::STEAL_REF);
  }
  grpc_byte_buffer_reader_destroy(&reader);
  grpc::ByteBuffer same(slices.data(), slices.size());
  grpc::ProtoBufferReader stream(&same);
  return CheckFieldCount(type, &stream, most);
}

// gRPC asks a handler to parse before it passes the context of the call. This one parses later.
class CheckedHandler final : public MethodHandler {
 public:
  CheckedHandler(std::unique_ptr<MethodHandler> parsing, const google::protobuf::Descriptor& type,
                 int most_fields, std::function<bool(const grpc::ServerContextBase&)> admits)
      : parsing_(std::move(parsing)),
        type_(type),
        most_fields_(most_fields),
        admits_(std::move(admits)) {}

  void* Deserialize(grpc_call*, grpc_byte_buffer* request, grpc::Status*, void**) override {
    return request;
  }

  void RunHandler(const HandlerParameter& call) override {
    auto* bytes = static_cast<grpc_byte_buffer*>(call.request);
    const bool admitted = admits_(*call.server_context);
    t_refused = admitted ? CheckFields(type_, bytes, most_fields_) : absl::OkStatus();
    if (!admitted || !t_refused.ok()) {
      grpc_byte_buffer_destroy(bytes);
      bytes = grpc_raw_byte_buffer_create(nullptr, 0);
    }
    grpc::Status status;
    void* data = nullptr;
    void* const request = parsing_->Deserialize(call.call->call(), bytes, &status, &data);
    KeptObjects kept;
    t_kept = &kept;
    parsing_->RunHandler(HandlerParameter(call.call, call.server_context, request, status, data,
                                          call.call_requester));
    t_kept = nullptr;
    t_refused = absl::OkStatus();
  }

 private:
  const std::unique_ptr<MethodHandler> parsing_;
  const google::protobuf::Descriptor& type_;
  const int most_fields_;
  const std::function<bool(const grpc::ServerContextBase&)> admits_;
};

RpcMethod::RpcType TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) return RpcMethod::CLIENT_STREAMING;
  return method.server_streaming() ? RpcMethod::SERVER_STREAMING : RpcMethod::NORMAL_RPC;
}

}  // namespace

CheckedService::CheckedService(const google::protobuf::ServiceDescriptor& service, Admits admits)
    : service_(service), admits_(std::move(admits)) {}

void CheckedService::KeepUntilAnswered(std::shared_ptr<const void> object) {
  if (t_kept != nullptr) t_kept->push_back(std::move(object));
}

const absl::Status& CheckedService::Refused() { return t_refused; }

void CheckedService::Add(const char* name, std::unique_ptr<MethodHandler> handler, bool blocks,
                         int most_fields) {
  const google::protobuf::MethodDescriptor* const method = service_.FindMethodByName(name);
  if (method == nullptr) std::abort();
  if (!method->client_streaming()) {
    handler = std::make_unique<CheckedHandler>(
        std::move(handler), *method->input_type(), most_fields,
        [this, name](const auto& context) { return admits_(name, context); });
  }
  const auto index = static_cast<int>(paths_.size());
  paths_.push_back(std::make_unique<const std::string>(
      absl::StrCat("/", service_.full_name(), "/", method->name())));
  if (blocks) {
    AddMethod(new RpcServiceMethod(paths_.back()->c_str(), TypeOf(*method), handler.release()));
    return;
  }
  AddMethod(new RpcServiceMethod(paths_.back()->c_str(), TypeOf(*method), nullptr));
  MarkMethodCallback(index, handler.release());
}

}  // namespace cohort::worker
