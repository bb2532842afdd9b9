#include "tests/amplification/http2_peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/failure/testing/raw_http2.h"

namespace cohort::amplification {
namespace {

using testing::Frame;
using testing::FrameType;
using testing::kEndHeaders;
using testing::kEndStream;
using testing::Number32;

constexpr size_t kFrameBytes = size_t{16} << 10;
// The peer keeps so many bytes of an answer, and drops the rest.
constexpr size_t kKeptBytes = size_t{64} << 10;
constexpr int kInitialWindowSetting = 4;
// The largest window: this client never stops an answer.
constexpr uint32_t kOwnWindow = 0x7fffffff;

uint32_t NumberOf(absl::string_view bytes) {
  uint32_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

std::string Greeting() {
  return absl::StrCat(kHttp2Preface,
                      Frame(FrameType::kSettings, 0, 0,
                            absl::StrCat(absl::string_view("\0\4", 2), Number32(kOwnWindow))),
                      Frame(FrameType::kWindowUpdate, 0, 0, Number32(kOwnWindow - 65535)));
}

}  // namespace

std::string GrpcMessage(absl::string_view message, bool compressed) {
  return absl::StrCat(std::string(1, compressed ? '\1' : '\0'),
                      Number32(static_cast<uint32_t>(message.size())), message);
}

Http2Peer::Http2Peer(int port, const std::string& token) : socket_(port), token_(token) {
  socket_.on_input = [this](absl::string_view bytes) { OnInput(bytes); };
  socket_.Send(Greeting());
}

uint32_t Http2Peer::Open(absl::string_view method, bool compressed) {
  last_stream_ = last_stream_ == 0 ? 1 : last_stream_ + 2;
  std::string block = testing::RequestBlock(method);
  // Header literals, the first with a name of HPACK's table: authorization, grpc-encoding.
  if (!token_.empty()) {
    const std::string value = absl::StrCat("Bearer ", token_);
    absl::StrAppend(&block, "\x0f\x08", std::string(1, static_cast<char>(value.size())), value);
  }
  if (compressed) absl::StrAppend(&block, absl::string_view("\0\x0dgrpc-encoding\4gzip", 20));
  streams_[last_stream_].window = initial_window_;
  SendFrame(Frame(FrameType::kHeaders, kEndHeaders, last_stream_, block));
  return last_stream_;
}

bool Http2Peer::SendFrame(const std::string& frame, absl::Duration timeout) {
  return socket_.Send(std::exchange(replies_, "") + frame, timeout);
}

bool Http2Peer::MayWrite(uint32_t stream) {
  const Stream& state = streams_[stream];
  return state.ended || (state.window > 0 && window_ > 0);
}

bool Http2Peer::Write(uint32_t stream, absl::string_view bytes, bool last, absl::Duration timeout) {
  do {
    if (!bytes.empty() && !socket_.Await([&] { return MayWrite(stream); }, timeout)) return false;
    Stream& state = streams_[stream];
    if (state.ended) return false;
    const int64_t most = std::min<int64_t>(std::min(state.window, window_), kFrameBytes);
    const absl::string_view piece =
        bytes.substr(0, static_cast<size_t>(std::max<int64_t>(most, 0)));
    bytes.remove_prefix(piece.size());
    state.window -= static_cast<int64_t>(piece.size());
    window_ -= static_cast<int64_t>(piece.size());
    const uint8_t flags = last && bytes.empty() ? kEndStream : 0;
    if (!SendFrame(Frame(FrameType::kData, flags, stream, piece), timeout)) return false;
  } while (!bytes.empty());
  return true;
}

bool Http2Peer::AwaitEnd(uint32_t stream, absl::Duration timeout) {
  return socket_.Await([&] { return streams_[stream].ended; }, timeout);
}

std::string Http2Peer::AwaitMessage(uint32_t stream, absl::Duration timeout) {
  constexpr size_t kPrefix = 5;
  const std::string& received = streams_[stream].received;
  size_t size = 0;
  const auto complete = [&] {
    if (received.size() < kPrefix) return streams_[stream].ended;
    size = kPrefix + NumberOf(absl::string_view(received).substr(1, 4));
    return received.size() >= size;
  };
  if (!socket_.Await(complete, timeout) || received.size() < kPrefix) return "";
  return received.substr(0, size);
}

void Http2Peer::OnInput(absl::string_view bytes) {
  absl::string_view payload;
  while (true) {
    switch (frames_.Next(&bytes, &payload)) {
      case Http2Frames::Step::kMore:
        return;
      case Http2Frames::Step::kHeader:
        payload_.clear();
        break;
      case Http2Frames::Step::kPayload:
        payload_.append(payload.data(), payload.size());
        break;
    }
    if (frames_.payload_left() == 0) OnFrame();
  }
}

void Http2Peer::OnFrame() {
  const Http2Frames::Header& header = frames_.header();
  const auto stream = streams_.find(header.stream);
  const bool known = stream != streams_.end();
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::kSettings: {
      if ((header.flags & kEndStream) != 0) return;  // an acknowledgement
      for (absl::string_view left = payload_; left.size() >= 6; left.remove_prefix(6)) {
        if (NumberOf(left.substr(0, 2)) != kInitialWindowSetting) continue;
        const int64_t next = NumberOf(left.substr(2, 4));
        for (auto& [id, open] : streams_) open.window += next - initial_window_;
        initial_window_ = next;
      }
      replies_ += Frame(FrameType::kSettings, kEndStream, 0, "");
      return;
    }
    case FrameType::kPing:
      if ((header.flags & kEndStream) == 0) {
        replies_ += Frame(FrameType::kPing, kEndStream, 0, payload_);
      }
      return;
    case FrameType::kWindowUpdate:
      if (header.stream == 0) window_ += NumberOf(payload_);
      if (known) stream->second.window += NumberOf(payload_);
      return;
    case FrameType::kResetStream:
      if (known) stream->second.ended = true;
      return;
    case FrameType::kData:
    case FrameType::kHeaders:
      if (!known) return;
      if (header.type == static_cast<uint8_t>(FrameType::kData) &&
          stream->second.received.size() < kKeptBytes) {
        stream->second.received += payload_;
      }
      if ((header.flags & kEndStream) != 0) stream->second.ended = true;
      return;
    default:
      return;
  }
}

}  // namespace cohort::amplification
