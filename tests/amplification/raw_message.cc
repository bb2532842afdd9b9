#include "tests/amplification/raw_message.h"

#include <memory>
#include <utility>
#include <vector>

#include "tests/amplification/peer_socket.h"

namespace cohort::amplification {

Message RawMessage(const std::string& name, int port,
                   std::function<std::optional<RawBytes>(Form form)> make) {
  return {name, [port, make = std::move(make)](Form form) -> std::optional<Sent> {
            const std::optional<RawBytes> raw = make(form);
            if (!raw.has_value()) return std::nullopt;
            auto sockets = std::make_shared<std::vector<PeerSocket>>();
            Sent sent;
            for (int i = 0; i < raw->connections; ++i) {
              PeerSocket& socket = sockets->emplace_back(port);
              socket.Send(raw->bytes);
              sent.bytes += socket.sent_bytes();
            }
            if (raw->then_ends) sockets->clear();
            sent.connections = std::move(sockets);
            return sent;
          }};
}

std::string Times(const std::string& bytes, int count) {
  std::string all;
  all.reserve(bytes.size() * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) all += bytes;
  return all;
}

}  // namespace cohort::amplification
