#include "tests/amplification/grpc_messages.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/unknown_field_set.h"
#include "tests/amplification/http2_peer.h"

namespace cohort::amplification {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::UnknownFieldSet;

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr absl::string_view kListServices("\x3a\x00", 2);  // field 7: an empty text
constexpr int kListField = 6;
constexpr size_t kPrefix = 5;

// Requests of one form, one behind the other.
constexpr int kManyCalls = 500;
constexpr int kManyMessages = 2000;
constexpr size_t kUnpackedBytes = size_t{256} << 20;

const std::string& Bomb() {
  static const auto* const bomb = new std::string(CompressedZeros(kUnpackedBytes));
  return *bomb;
}

// The fields of a message with this number, which have texts or messages.
std::vector<std::string> FieldsIn(const std::string& bytes, int number) {
  UnknownFieldSet set;
  if (!set.ParseFromString(bytes)) std::abort();
  std::vector<std::string> fields;
  for (int i = 0; i < set.field_count(); ++i) {
    if (set.field(i).number() == number &&
        set.field(i).type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      fields.push_back(set.field(i).length_delimited());
    }
  }
  return fields;
}

class Call {
 public:
  Call(std::string path, const google::protobuf::Descriptor* request, bool streams, Sender sender)
      : path_(std::move(path)),
        streams_(streams),
        sender_(std::move(sender)),
        forms_(request, request == nullptr ? "" : SmallMessage(*request, sender_.adjust),
               sender_.request_bytes) {}

  std::optional<Sent> Attack(Form form) const {
    connections_ = std::make_shared<Connections>();
    switch (form) {
      case Form::kLargest:
        for (int i = 0; i < kLargeRequests; ++i) SendCall(forms_.Largest());
        break;
      case Form::kElements:
        for (const std::string& request : forms_.Elements()) SendCall(request);
        break;
      case Form::kUnknown:
        SendCall(forms_.Unknown());
        break;
      case Form::kCompressed:
        Connection().Write(Connection().Open(path_, true), GrpcMessage(Bomb(), true), true);
        break;
      case Form::kRepeated:
        SendMany();
        break;
      case Form::kPartial: {
        const std::string request = GrpcMessage(forms_.Largest());
        for (int i = 0; i < sender_.connections; ++i) {
          Http2Peer& peer = NewConnection();
          peer.Write(peer.Open(path_), absl::string_view(request).substr(0, request.size() - 1),
                     false);
        }
        break;
      }
      case Form::kSilent:
        for (int i = 0; i < sender_.connections; ++i) NewConnection().Open(path_);
        break;
      case Form::kAbandoned:
        SendCall(forms_.Largest());
        SendCall(forms_.Unknown());
        break;
    }
    Sent sent;
    for (const auto& connection : *connections_) sent.bytes += connection->sent_bytes();
    if (form == Form::kAbandoned) connections_->clear();
    sent.connections = std::move(connections_);
    return sent;
  }

 private:
  using Connections = std::vector<std::unique_ptr<Http2Peer>>;

  Http2Peer& NewConnection() const {
    return *connections_->emplace_back(std::make_unique<Http2Peer>(sender_.port, sender_.token));
  }
  // An open connection.
  Http2Peer& Connection() const {
    const bool open = !connections_->empty() && !connections_->back()->closed();
    return open ? *connections_->back() : NewConnection();
  }
  void SendCall(const std::string& request) const {
    Http2Peer& peer = Connection();
    peer.Write(peer.Open(path_), GrpcMessage(request), true);
  }
  // As many calls as there may be, and many messages in one call.
  void SendMany() const {
    const std::string message = GrpcMessage(forms_.Small());
    for (int i = 0; i < kManyCalls && !streams_; ++i) {
      Http2Peer& peer = Connection();
      peer.Write(peer.Open(path_), message, true);
    }
    std::string messages;
    for (int i = 0; i < kManyMessages; ++i) messages += message;
    Http2Peer& peer = Connection();
    peer.Write(peer.Open(path_), messages, false, absl::Milliseconds(50));
  }

  const std::string path_;
  const bool streams_;  // the request is a stream
  const Sender sender_;
  const WireForms forms_;
  mutable std::shared_ptr<Connections> connections_;  // of the attack that runs
};

}  // namespace

std::vector<std::string> ServicesAt(int port) {
  Http2Peer peer(port, "");
  const uint32_t stream = peer.Open(kReflection);
  peer.Write(stream, GrpcMessage(kListServices), true);
  const std::string answer = peer.AwaitMessage(stream);
  if (answer.size() <= kPrefix) std::abort();
  std::vector<std::string> names;
  for (const std::string& list : FieldsIn(answer.substr(kPrefix), kListField)) {
    for (const std::string& service : FieldsIn(list, 1)) {
      for (const std::string& name : FieldsIn(service, 1)) names.push_back(name);
    }
  }
  return names;
}

const ServiceDescriptor* FindService(const std::string& name) {
  return DescriptorPool::generated_pool()->FindServiceByName(name);
}

std::vector<Message> GrpcMessages(const std::string& service, const Sender& sender,
                                  const std::vector<std::string>& unknown_methods) {
  std::vector<Message> messages;
  const auto add = [&](const std::string& name, const google::protobuf::Descriptor* request,
                       bool streams) {
    const std::string path = absl::StrCat("/", service, "/", name);
    const auto call = std::make_shared<Call>(path, request, streams, sender);
    messages.push_back({path.substr(1), [call](Form form) { return call->Attack(form); }});
  };
  const ServiceDescriptor* const known = FindService(service);
  for (int i = 0; known != nullptr && i < known->method_count(); ++i) {
    const MethodDescriptor& method = *known->method(i);
    add(method.name(), method.input_type(), method.client_streaming());
  }
  for (const std::string& name : unknown_methods) add(name, nullptr, false);
  return messages;
}

}  // namespace cohort::amplification
