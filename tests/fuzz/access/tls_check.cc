#include "tests/fuzz/access/tls_check.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/frame.h"
#include "base/port/limits/http2_guard.h"
#include "base/status_macros.h"
#include "base/tls/tls_context.h"
#include "base/unique_fd.h"
#include "tests/fuzz/access/damaged_tls_client.h"
#include "tests/fuzz/access/frame_client.h"
#include "tests/fuzz/access/guarded_coordinator.h"

namespace cohort::coordinator::fuzz {
namespace {

constexpr uint8_t kByTls = 1;
constexpr uint8_t kWithCertificate = 2;
constexpr uint8_t kOldVersion = 4;
constexpr uint8_t kCertificateOptional = 8;
constexpr size_t kHeaderBytes = 6;
// This process has fewer descriptors. The lowest free number is a new socket's, so a larger one
// means that the coordinator has kept descriptors.
constexpr int kMostDescriptors = 200;

struct TlsInput {
  uint8_t client = 0;
  size_t piece = 1;
  Damage damage;
  absl::string_view message;
};

TlsInput Parse(absl::string_view input) {
  TlsInput parsed;
  if (input.size() < kHeaderBytes) {
    parsed.message = input;
    return parsed;
  }
  const auto byte = [input](size_t at) { return static_cast<uint8_t>(input[at]); };
  parsed.client = byte(0);
  parsed.piece = size_t{1} << byte(1) % 15;
  parsed.damage.kind = static_cast<Damage::Kind>(byte(2) % Damage::kKinds);
  parsed.damage.at = byte(3) | size_t{byte(4)} << 8;
  parsed.damage.value = byte(5);
  parsed.message = input.substr(kHeaderBytes);
  return parsed;
}

// Writes and reads as the socket allows, so that neither side waits for the other.
class Exchange {
 public:
  Exchange(int fd, size_t piece) : fd_(fd), piece_(piece) {}

  // Sends the unsent bytes, and receives those that have come. With `wait`, it waits for something
  // to receive. INTERNAL: nothing came in time.
  absl::Status Run(std::string* unsent, std::string* received, bool wait) {
    while (!closed_) {
      Receive(received);
      if (unsent->empty() && (!wait || !received->empty())) return absl::OkStatus();
      if (closed_) break;
      const short events = static_cast<short>(unsent->empty() ? POLLIN : POLLIN | POLLOUT);
      if (!AwaitEvents(fd_, events)) {
        return absl::InternalError("the coordinator neither reads, answers nor closes");
      }
      if (unsent->empty()) continue;
      const ssize_t sent =
          send(fd_, unsent->data(), std::min(piece_, unsent->size()), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) unsent->erase(0, static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EINTR) unsent->clear();  // it has closed
    }
    return absl::OkStatus();
  }
  bool closed() const { return closed_; }

 private:
  void Receive(std::string* received) {
    char buffer[16384];
    while (!closed_) {
      const ssize_t count = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (count > 0) {
        received->append(buffer, static_cast<size_t>(count));
      } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        closed_ = true;
      } else {
        return;
      }
    }
  }

  const int fd_;
  const size_t piece_;
  bool closed_ = false;
};

absl::Status ConverseByTls(Exchange& exchange, const TlsInput& input, const TlsFiles& files,
                           std::string* received, TlsCounts& counts) {
  DamagedTlsClient client(
      files, (input.client & kOldVersion) != 0 ? TLS1_2_VERSION : TLS1_3_VERSION, input.damage);
  while (true) {
    client.Run(input.message);
    std::string unsent = client.Take();
    received->clear();
    COHORT_RETURN_IF_ERROR(exchange.Run(&unsent, received, !client.done()));
    if (client.done() || exchange.closed()) break;
    client.Give(*received);
  }
  if (client.connected()) ++counts.handshakes;
  return absl::OkStatus();
}

std::string InputOf(uint8_t client, uint8_t piece, Damage::Kind damage, size_t at, uint8_t value,
                    absl::string_view message) {
  const char header[kHeaderBytes] = {static_cast<char>(client),  static_cast<char>(piece),
                                     static_cast<char>(damage),  static_cast<char>(at & 0xff),
                                     static_cast<char>(at >> 8), static_cast<char>(value)};
  return absl::StrCat(absl::string_view(header, kHeaderBytes), message);
}

}  // namespace

absl::Status CheckTls(absl::string_view input, TlsCounts* counts) {
  TlsCounts ignored;
  TlsCounts& counted = counts == nullptr ? ignored : *counts;
  const TlsInput parsed = Parse(input);
  GuardedCoordinator& coordinator =
      GuardedCoordinator::Shared((parsed.client & kCertificateOptional) != 0);
  {
    const UniqueFd fd(ConnectTo(coordinator.path()));
    if (fd.get() < 0) return absl::InternalError("the coordinator accepts no connection");
    if (fd.get() > kMostDescriptors) return absl::InternalError("descriptors are left open");
    Exchange exchange(fd.get(), parsed.piece);
    std::string received;
    if ((parsed.client & kByTls) != 0) {
      const TlsFiles files =
          (parsed.client & kWithCertificate) != 0 ? coordinator.client() : coordinator.anonymous();
      COHORT_RETURN_IF_ERROR(ConverseByTls(exchange, parsed, files, &received, counted));
    } else {
      std::string unsent(parsed.message);
      COHORT_RETURN_IF_ERROR(exchange.Run(&unsent, &received, false));
    }
    shutdown(fd.get(), SHUT_WR);
    std::string nothing;
    while (!exchange.closed()) {
      std::string more;
      COHORT_RETURN_IF_ERROR(exchange.Run(&nothing, &more, true));
      received += more;
    }
    ++(received.empty() ? counted.silent : counted.answered);
  }
  COHORT_RETURN_IF_ERROR(coordinator.ServesGoodClient());
  if (!coordinator.AwaitIdle())
    return absl::InternalError("calls of a client that is gone are left");
  return absl::OkStatus();
}

std::map<std::string, std::string> SampleTlsInputs() {
  using Kind = Damage::Kind;
  const std::string framed(framed_rpc::kPreface);
  const std::string http2(kHttp2Preface);
  // Empty settings.
  const std::string settings = http2 + std::string("\0\0\0\4\0\0\0\0\0", 9);
  std::map<std::string, std::string> samples = {
      {"nothing", ""},
      {"plain_framed_rpc", InputOf(0, 14, Kind::kNothing, 0, 0, framed)},
      {"plain_http2", InputOf(0, 14, Kind::kNothing, 0, 0, settings)},
      {"plain_http1", InputOf(0, 14, Kind::kNothing, 0, 0, "GET / HTTP/1.1\r\n\r\n")},
      {"plain_half_a_preface", InputOf(0, 0, Kind::kNothing, 0, 0, framed.substr(0, 4))},
      {"record_without_handshake", InputOf(0, 14, Kind::kNothing, 0, 0, "\x16\x03\x01\x40")},
      {"alert_first",
       InputOf(0, 14, Kind::kNothing, 0, 0, absl::string_view("\x15\x03\x03\0\2\2\x28", 7))},
  };
  for (const uint8_t version : {uint8_t{0}, kOldVersion}) {
    const std::string name = version == 0 ? "tls_1_3" : "tls_1_2";
    const uint8_t client = static_cast<uint8_t>(version | kByTls | kWithCertificate);
    samples[name + "_framed_rpc"] = InputOf(client, 14, Kind::kNothing, 0, 0, framed);
    samples[name + "_http2"] = InputOf(client, 14, Kind::kNothing, 0, 0, settings);
    samples[name + "_byte_by_byte"] = InputOf(client, 0, Kind::kNothing, 0, 0, framed);
    samples[name + "_without_certificate"] =
        InputOf(static_cast<uint8_t>(version | kByTls), 14, Kind::kNothing, 0, 0, framed);
    samples[name + "_optional_certificate"] =
        InputOf(static_cast<uint8_t>(version | kByTls | kCertificateOptional), 14, Kind::kNothing,
                0, 0, settings);
    samples[name + "_unknown_protocol"] = InputOf(client, 14, Kind::kNothing, 0, 0, "hello there");
    samples[name + "_no_message"] = InputOf(client, 14, Kind::kNothing, 0, 0, "");
    for (const auto& [what, kind] :
         {std::pair("flip", Kind::kFlip), std::pair("insert", Kind::kInsert),
          std::pair("drop", Kind::kDrop), std::pair("twice", Kind::kTwice),
          std::pair("end", Kind::kEnd)}) {
      // In the record's header, in the client's hello, and behind it.
      for (const size_t at : {3, 100, 400, 900}) {
        samples[absl::StrCat(name, "_", what, "_", at)] = InputOf(client, 14, kind, at, 9, framed);
      }
    }
  }
  return samples;
}

}  // namespace cohort::coordinator::fuzz
