#include "tests/amplification/mesh_messages.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/id128.h"
#include "tests/amplification/raw_message.h"
#include "worker/communicator/socket/mesh/handshake.h"
#include "worker/communicator/socket/mesh/link_proof.h"
#include "worker/communicator/socket/mesh/rank_listener.h"

namespace cohort::amplification {
namespace {

// More than a rank accepts of connections that have not said who they are.
constexpr int kManyConnections = 400;
constexpr size_t kTooLarge = size_t{1} << 20;

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

Message MessageOf(const std::string& name, int port, const std::string& bytes) {
  return RawMessage(name, port, [bytes](Form form) -> std::optional<RawBytes> {
    switch (form) {
      case Form::kLargest:
        return RawBytes{absl::StrCat(bytes, std::string(kTooLarge, 'x'))};
      case Form::kElements:
        return RawBytes{Times(bytes, 1000)};
      case Form::kUnknown:
      case Form::kCompressed:
        return std::nullopt;
      case Form::kRepeated:
        return RawBytes{bytes, kManyConnections};
      case Form::kPartial:
        return RawBytes{bytes.substr(0, bytes.size() - 1), kManyConnections};
      case Form::kSilent:
        return RawBytes{"", kManyConnections};
      case Form::kAbandoned:
        return RawBytes{bytes, kManyConnections, /*then_ends=*/true};
    }
    return std::nullopt;
  });
}

}  // namespace

worker::MeshOptions MeshOptionsOf(int rank, const std::string& address) {
  worker::MeshOptions options;
  options.rank = rank;
  options.addresses = {address, "127.0.0.1:1"};  // rank 0 connects to no rank above it
  options.secret = Id128{1, 2};
  return options;
}

std::vector<Message> MeshMessages(int port) {
  const worker::MeshOptions options = MeshOptionsOf(1, "");
  const worker::Membership rank{1, 2, options.streams, options.secret};
  const std::string hello = BytesOf(worker::MakeHello(rank, 0, 0));
  return {MessageOf("hello", port, hello),
          MessageOf("proof", port, absl::StrCat(hello, std::string(worker::kProofBytes, 'p')))};
}

bool ConnectAsRank(int port, absl::Duration timeout) {
  const auto listener = worker::Listener::Open("127.0.0.1", 0);
  if (!listener.ok()) return false;
  const Instant deadline = Clock::Steady().Now() + timeout;
  const worker::MeshOptions options = MeshOptionsOf(1, absl::StrCat("127.0.0.1:", port));
  absl::Status status;
  do {
    status = worker::ConnectMesh(*listener, options, deadline).status();
    // Rank 0 has not let go of the rank of the last call.
  } while (absl::IsUnavailable(status) && Clock::Steady().Now() < deadline);
  return status.ok();
}

}  // namespace cohort::amplification
