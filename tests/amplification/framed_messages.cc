#include "tests/amplification/framed_messages.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/frame.h"
#include "google/protobuf/descriptor.h"
#include "tests/amplification/peer_socket.h"
#include "tests/amplification/raw_message.h"
#include "tests/amplification/wire_forms.h"

namespace cohort::amplification {
namespace {

using framed_rpc::FrameReader;
using framed_rpc::Header;
using framed_rpc::Kind;
using framed_rpc::kPreface;

constexpr int kManyCalls = 2000;
constexpr size_t kMostHello = size_t{1} << 20;

std::string FrameBytes(Kind kind, uint32_t call, uint16_t method, absl::string_view body,
                       std::optional<size_t> announced = {}) {
  Header header;
  header.kind = kind;
  header.call = call;
  header.method = method;
  header.body_bytes = static_cast<uint32_t>(announced.value_or(body.size()));
  if (kind == Kind::kCall) header.extra = framed_rpc::kNoTimeout;
  std::string bytes;
  framed_rpc::AppendHeader(header, &bytes);
  return absl::StrCat(bytes, body);
}

std::string GreetingOf(const std::string& token) {
  return absl::StrCat(kPreface, token.empty() ? "" : FrameBytes(Kind::kToken, 0, 0, token));
}

// The names of the methods, by their number.
std::vector<std::string> MethodsAt(int port) {
  PeerSocket socket(port);
  std::string received;
  socket.on_input = [&](absl::string_view bytes) { received.append(bytes.data(), bytes.size()); };
  socket.Send(kPreface);
  std::vector<std::string> methods;
  const auto has_hello = [&] {
    FrameReader reader(kMostHello);
    framed_rpc::Frame frame;
    if (received.size() < kPreface.size()) return false;
    const absl::string_view rest = absl::string_view(received).substr(kPreface.size());
    rest.copy(reader.Room(rest.size()), rest.size());
    reader.Filled(rest.size());
    if (reader.Read(&frame) != FrameReader::Next::kFrame) return false;
    methods = absl::StrSplit(frame.body, '\n', absl::SkipEmpty());
    return true;
  };
  if (!socket.Await(has_hello, absl::Seconds(20))) std::abort();
  return methods;
}

const google::protobuf::Descriptor* RequestOf(const std::string& method) {
  const auto* const found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
      absl::StrReplaceAll(method, {{"/", "."}}));
  return found == nullptr ? nullptr : found->input_type();
}

// Frames of one kind, which for calls is of one method.
class Frames {
 public:
  Frames(Kind kind, uint16_t method, const google::protobuf::Descriptor* request, Sender sender)
      : kind_(kind),
        method_(method),
        sender_(std::move(sender)),
        forms_(request, request == nullptr ? "" : SmallMessage(*request, sender_.adjust),
               sender_.request_bytes) {}

  // Behind the greeting.
  std::optional<RawBytes> Make(Form form) const {
    switch (form) {
      case Form::kLargest:
        return Together(std::vector<std::string>(kLargeRequests, forms_.Largest()));
      case Form::kElements:
        return Together(forms_.Elements());
      case Form::kUnknown:
        return Together({forms_.Unknown()});
      case Form::kCompressed:
        return std::nullopt;
      case Form::kRepeated:
        return Together(std::vector<std::string>(kManyCalls, forms_.Small()));
      case Form::kPartial: {
        RawBytes raw = Together({forms_.Largest()});
        raw.bytes.pop_back();
        raw.connections = sender_.connections;
        return raw;
      }
      case Form::kSilent:
        // The header announces the largest request.
        return RawBytes{
            GreetingOf(sender_.token) + FrameBytes(kind_, 1, method_, "", sender_.request_bytes),
            sender_.connections};
      case Form::kAbandoned: {
        RawBytes raw = Together({forms_.Largest(), forms_.Unknown()});
        raw.then_ends = true;
        return raw;
      }
    }
    return std::nullopt;
  }

 private:
  RawBytes Together(const std::vector<std::string>& requests) const {
    RawBytes raw{GreetingOf(sender_.token)};
    uint32_t call = 0;
    for (const std::string& request : requests) {
      raw.bytes += FrameBytes(kind_, ++call, method_, request);
    }
    return raw;
  }

  const Kind kind_;
  const uint16_t method_;
  const Sender sender_;
  const WireForms forms_;
};

}  // namespace

std::vector<Message> FramedMessages(const Sender& sender) {
  std::vector<Message> messages;
  const auto add = [&](const std::string& name, Kind kind, uint16_t method) {
    const auto frames = std::make_shared<Frames>(kind, method, RequestOf(name), sender);
    messages.push_back(
        RawMessage(name, sender.port, [frames](Form form) { return frames->Make(form); }));
  };
  const std::vector<std::string> methods = MethodsAt(sender.port);
  for (size_t i = 0; i < methods.size(); ++i) {
    add(methods[i], Kind::kCall, static_cast<uint16_t>(i));
  }
  // Those that a server sends are refused.
  add("frame hello", Kind::kHello, 0);
  add("frame cancel", Kind::kCancel, 0);
  add("frame reply", Kind::kReply, 0);
  add("frame token", Kind::kToken, 0);
  add("frame part", Kind::kPart, 0);
  add("frame next", Kind::kNext, 0);
  return messages;
}

}  // namespace cohort::amplification
