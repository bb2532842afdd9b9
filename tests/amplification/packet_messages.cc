#include "tests/amplification/packet_messages.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "tests/amplification/raw_message.h"

namespace cohort::amplification {
namespace {

using google::protobuf::Descriptor;
using shm::LocalSocket;

constexpr int kManyPackets = 500;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(2); }

class Connections {
 public:
  explicit Connections(const PacketSender& sender) : sender_(sender) {}

  // Sends the packets on a new connection, and drops the answers.
  void Send(const std::vector<std::string>& packets) {
    absl::StatusOr<LocalSocket> socket = LocalSocket::Connect(sender_.name, Soon());
    if (!socket.ok()) return;
    std::vector<std::string> all = packets;
    if (sender_.first != nullptr) all.insert(all.begin(), sender_.first());
    for (const std::string& packet : all) {
      if (!socket->Send(packet, {}, Soon()).ok()) break;
      sent_bytes_ += static_cast<int64_t>(packet.size());
      while (socket->Receive(absl::InfinitePast()).ok()) {
      }
    }
    sockets_.push_back(*std::move(socket));
  }
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  const PacketSender sender_;
  std::vector<LocalSocket> sockets_;
  int64_t sent_bytes_ = 0;
};

Sent Attack(const PacketSender& sender, const WireForms& forms, Form form) {
  const auto connections = std::make_shared<Connections>(sender);
  switch (form) {
    case Form::kLargest:
      connections->Send(std::vector<std::string>(kLargeRequests, forms.Largest()));
      break;
    case Form::kElements:
      connections->Send(forms.Elements());
      break;
    case Form::kUnknown:
      connections->Send({forms.Unknown()});
      break;
    case Form::kCompressed:
      break;
    case Form::kRepeated:
      connections->Send(std::vector<std::string>(kManyPackets, forms.Small()));
      break;
    case Form::kPartial: {
      std::string packet = forms.Largest();
      packet.pop_back();
      for (int i = 0; i < kConnections; ++i) connections->Send({packet});
      break;
    }
    case Form::kSilent:
      for (int i = 0; i < kConnections; ++i) connections->Send({});
      break;
    case Form::kAbandoned:
      connections->Send({forms.Largest(), forms.Unknown()});
      return {connections->sent_bytes(), nullptr};
  }
  return {connections->sent_bytes(), connections};
}

}  // namespace

std::vector<Message> PacketMessages(const Descriptor& type, bool by_field,
                                    const PacketSender& sender) {
  std::vector<Message> messages;
  for (int i = 0; i < (by_field ? type.field_count() : 1); ++i) {
    const google::protobuf::FieldDescriptor* const field = by_field ? type.field(i) : nullptr;
    const auto adjust = [&](google::protobuf::Message* message) {
      // A field of a oneof that is set last is the one that counts.
      if (field != nullptr && field->cpp_type() == field->CPPTYPE_MESSAGE) {
        message->GetReflection()->MutableMessage(message, field);
      } else if (field != nullptr && field->cpp_type() == field->CPPTYPE_BOOL) {
        message->GetReflection()->SetBool(message, field, true);
      }
      if (sender.adjust != nullptr) sender.adjust(message);
    };
    const auto forms =
        std::make_shared<WireForms>(&type, SmallMessage(type, adjust), LocalSocket::kMaxBytes);
    const std::string name =
        field == nullptr ? type.name() : absl::StrCat(type.name(), ".", field->name());
    messages.push_back({name, [sender, forms](Form form) -> std::optional<Sent> {
                          if (form == Form::kCompressed) return std::nullopt;
                          return Attack(sender, *forms, form);
                        }});
  }
  return messages;
}

}  // namespace cohort::amplification
