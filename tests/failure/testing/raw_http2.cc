#include "tests/failure/testing/raw_http2.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/rpc/client_tls.h"
#include "base/tls/tls_session.h"

namespace cohort::testing {
namespace {

constexpr size_t kKept = 4096;
constexpr int kHandshakeMs = 20000;

// An HPACK literal that is not added to the table, with a name of the static table.
std::string Literal(char index, absl::string_view value) {
  std::string text(1, index);
  text.push_back(static_cast<char>(value.size()));
  return absl::StrCat(text, value);
}

}  // namespace

std::string Number32(uint32_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(number >> shift));
  return text;
}

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string frame = Number32(static_cast<uint32_t>(payload.size())).substr(1);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return absl::StrCat(frame, Number32(stream), payload);
}

std::string RequestBlock(absl::string_view method) {
  return absl::StrCat("\x83\x86", Literal('\x04', method), Literal('\x01', "localhost"),
                      absl::string_view("\x0f", 1), Literal('\x10', "application/grpc"),
                      absl::string_view("\x00\x02te\x08trailers", 13));
}

std::string RawHttp2::Greeting() {
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(FrameType::kSettings, 0, 0, ""),
                      Frame(FrameType::kSettings, kEndStream, 0, ""));
}

RawHttp2::RawHttp2(int port, absl::string_view greeting, Transport transport)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    std::abort();
  }
  stream_.fd = fd_.get();
  if (transport == Transport::kOfEnvironment) ShakeHands();
  Send(greeting);
}

void RawHttp2::ShakeHands() {
  const std::string host = "127.0.0.1";
  const absl::StatusOr<ClientTls> tls = ClientTlsOfEnvironment(host);
  if (!tls.ok()) std::abort();
  if (tls->framed_rpc == nullptr) return;
  stream_.tls =
      TlsSession::Connect(tls->framed_rpc->Current(Clock::Steady().Now()), fd_.get(), host);
  TlsSession::Progress progress;
  while ((progress = stream_.tls->Handshake()) == TlsSession::Progress::kWantInput) {
    pollfd waited{fd_.get(), POLLIN, 0};
    if (poll(&waited, 1, kHandshakeMs) <= 0) std::abort();
  }
  closed_ = progress != TlsSession::Progress::kDone;
}

void RawHttp2::Drain() {
  char buffer[size_t{64} << 10];
  while (!closed_) {
    const ssize_t count = stream_.Receive(buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      closed_ = true;
      return;
    }
    last_.append(buffer, static_cast<size_t>(count));
    if (last_.size() > kKept) last_.erase(0, last_.size() - kKept);
  }
}

bool RawHttp2::Send(absl::string_view bytes, absl::Duration timeout) {
  while (!closed_ && !bytes.empty()) {
    pollfd waited{fd_.get(), POLLIN | POLLOUT, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) return false;
    if ((waited.revents & (POLLIN | POLLHUP | POLLERR)) != 0) Drain();
    if (closed_ || (waited.revents & POLLOUT) == 0) continue;
    const ssize_t count = stream_.Send(bytes);
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
    if (count < 0 && errno != EAGAIN && errno != EINTR) closed_ = true;
  }
  return !closed_;
}

void RawHttp2::Finish() { shutdown(fd_.get(), SHUT_WR); }

bool RawHttp2::AwaitClosed(absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  while (!closed_) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd waited{fd_.get(), POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0) Drain();
  }
  return true;
}

bool RawHttp2::AwaitText(absl::string_view text, absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  while (!absl::StrContains(last_, text)) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (closed_ || left <= absl::ZeroDuration()) return false;
    pollfd waited{fd_.get(), POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0) Drain();
  }
  return true;
}

}  // namespace cohort::testing
