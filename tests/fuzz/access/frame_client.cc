#include "tests/fuzz/access/frame_client.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/clock.h"

namespace cohort::coordinator::fuzz {

int ConnectTo(const std::string& path) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) return -1;
  return fd.release();
}

bool AwaitEvents(int fd, short events) {
  const Instant deadline = Clock::Steady().Now() + kTimeout;
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    pollfd waited{fd, events, 0};
    const int ready = poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return true;
    if (left <= absl::ZeroDuration()) return false;
    if (ready < 0 && errno != EINTR) return false;  // libFuzzer has a timer
  }
}

FrameClient::FrameClient(UniqueFd fd, std::shared_ptr<TlsSession> tls)
    : fd_(std::move(fd)), socket_{fd_.get(), std::move(tls)} {}

bool FrameClient::Greet() {
  if (socket_.Send(framed_rpc::kPreface) != static_cast<ssize_t>(framed_rpc::kPreface.size())) {
    return false;
  }
  absl::string_view preface;
  while (!reader_.Peek(framed_rpc::kPreface.size(), &preface)) {
    if (!Receive()) return false;
  }
  if (preface != framed_rpc::kPreface) return false;
  reader_.Skip(preface.size());
  framed_rpc::Frame frame;
  while (reader_.Read(&frame) != framed_rpc::FrameReader::Next::kFrame) {
    if (!Receive()) return false;
  }
  methods_ = absl::StrSplit(frame.body, '\n');
  return frame.header.kind == framed_rpc::Kind::kHello;
}

uint16_t FrameClient::NumberOf(absl::string_view method) const {
  const auto found = std::find(methods_.begin(), methods_.end(), method);
  return static_cast<uint16_t>(found - methods_.begin());
}

void FrameClient::Send(framed_rpc::Kind kind, uint16_t method, absl::string_view body) {
  framed_rpc::Header header;
  header.kind = kind;
  header.call = kind == framed_rpc::Kind::kCall ? ++last_call_ : 0;
  header.method = method;
  header.extra = framed_rpc::kNoTimeout;
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::string bytes;
  framed_rpc::AppendHeader(header, &bytes);
  bytes.append(body.data(), body.size());
  for (absl::string_view left = bytes; !left.empty();) {
    const ssize_t sent = socket_.Send(left);
    if (sent >= 0) {
      left.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN || !AwaitEvents(fd_.get(), POLLOUT)) {
      return;
    }
  }
}

std::optional<FrameClient::Reply> FrameClient::Next() {
  framed_rpc::Frame frame;
  while (reader_.Read(&frame) != framed_rpc::FrameReader::Next::kFrame) {
    if (!Receive()) return std::nullopt;
  }
  const size_t size = std::min<size_t>(frame.header.extra, frame.body.size());
  return Reply{frame.header.code,
               frame.header.code == 0 ? "" : std::string(frame.body.substr(0, size)),
               std::string(frame.body)};
}

bool FrameClient::Receive() {
  while (true) {
    const ssize_t count = socket_.Receive(reader_.Room(65536), 65536);
    if (count > 0) {
      reader_.Filled(static_cast<size_t>(count));
      return true;
    }
    if (count == 0 || errno != EAGAIN || !AwaitEvents(fd_.get(), POLLIN)) return false;
  }
}

}  // namespace cohort::coordinator::fuzz
