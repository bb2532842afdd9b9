#include "base/port/limits/http2_guard.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cohort {
namespace {

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kWindowUpdate = 8,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kAcknowledge = 1;
constexpr uint8_t kEndHeaders = 4;
// gRPC keeps each piece of a message apart.
constexpr uint32_t kPieceBytes = 64;
constexpr uint8_t kPrefixBytes = 5;
// Window updates below this are of no use to a transfer.
constexpr uint32_t kSmallUpdate = 1024;
// A message has at most one frame of fewer bytes, its last, unless windows are small.
constexpr uint32_t kSmallData = 256;
// Idle frames that go with a request or a message.
constexpr double kIdleFramesEach = 4;
// A call that was parked for so long costs its caller more than its end costs the server.
constexpr absl::Duration kRapid = absl::Seconds(1);
// Resets are handed to gRPC so many times as fast as they may come for long: a flood reaches its
// limit within a second.
constexpr double kPacedShare = 4;
constexpr uint32_t kCancel = 8;  // a reset's error code
constexpr int kSettingBytes = 6;
constexpr uint64_t kInitialWindow = 4;  // a setting's number
// Without a window even the shortest answers would stay in gRPC, and the threads that wait for
// them. gRPC's own clients have a larger one.
constexpr uint32_t kFewestWindowBytes = 1024;
// A client that does not know the limit yet may open so many more. gRPC itself ends a connection,
// and all of its streams at once, that goes over the limit later.
constexpr size_t kStreamSlack = 128;

uint32_t Number(const uint8_t* bytes, int count) {
  uint32_t number = 0;
  for (int i = 0; i < count; ++i) number = number << 8 | bytes[i];
  return number;
}

void AppendNumber(uint32_t number, int bytes, std::string* text) {
  while (bytes-- > 0) text->push_back(static_cast<char>(number >> 8 * bytes));
}

absl::Status Over(absl::string_view limit, int64_t value) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the HTTP/2 frames of a connection are over ", limit, " (", value, ")"));
}

}  // namespace

Http2Frames::Step Http2Frames::Next(absl::string_view* bytes, absl::string_view* payload) {
  if (bytes->empty()) return Step::kMore;
  if (payload_left_ > 0) {
    *payload = bytes->substr(0, payload_left_);
    payload_left_ -= static_cast<uint32_t>(payload->size());
    bytes->remove_prefix(payload->size());
    return Step::kPayload;
  }
  const size_t take = std::min(raw_.size() - have_, bytes->size());
  std::copy_n(bytes->data(), take, raw_.begin() + static_cast<ptrdiff_t>(have_));
  have_ += take;
  bytes->remove_prefix(take);
  if (have_ < raw_.size()) return Step::kMore;
  have_ = 0;
  header_.length = Number(raw_.data(), 3);
  header_.type = raw_[3];
  header_.flags = raw_[4];
  header_.stream = Number(raw_.data() + 5, 4) & 0x7fffffff;
  payload_left_ = header_.length;
  return Step::kHeader;
}

absl::Status Http2Guard::OnReceived(absl::string_view bytes, Instant now, bool suspect) {
  now_ = now;
  suspect_ = suspect;
  const size_t size = bytes.size();
  whole_bytes_.reset();
  if (preface_have_ < kHttp2Preface.size()) {
    const absl::string_view rest = kHttp2Preface.substr(preface_have_);
    const size_t take = std::min(rest.size(), bytes.size());
    if (bytes.substr(0, take) != rest.substr(0, take)) {
      return absl::InvalidArgumentError("the connection does not begin with HTTP/2's preface");
    }
    preface_have_ += take;
    bytes.remove_prefix(take);
    if (preface_have_ < kHttp2Preface.size()) return absl::OkStatus();
  }
  absl::string_view payload;
  while (true) {
    if (between_frames()) whole_bytes_ = size - bytes.size();
    absl::Status status;
    switch (received_.Next(&bytes, &payload)) {
      case Http2Frames::Step::kMore:
        return absl::OkStatus();
      case Http2Frames::Step::kHeader:
        status = OnHeader(received_.header());
        break;
      case Http2Frames::Step::kPayload:
        status = OnPayload(received_.header(), payload, received_.payload_left() == 0);
        break;
    }
    if (!status.ok()) return status;
  }
}

absl::Status Http2Guard::OnHeader(const Http2Frames::Header& header) {
  if (in_header_block_ != (header.type == kContinuation)) {
    return absl::InvalidArgumentError(
        in_header_block_ ? "HTTP/2: expected a CONTINUATION frame, got another frame"
                         : "HTTP/2: got a CONTINUATION frame outside of a header block");
  }
  number_ = 0;
  setting_have_ = 0;
  switch (header.type) {
    case kHeaders: {
      header_block_bytes_ = 0;
      header_frames_ = 0;
      last_header_stream_ = header.stream;
      absl::Status status = OpenStream(header);
      if (status.ok()) status = AddToHeaderBlock(header);
      if ((header.flags & kEndStream) != 0) EndByClient(header.stream);
      return status;
    }
    case kContinuation:
      return AddToHeaderBlock(header);
    case kResetStream:
      if (!EndsEarly(header.stream)) return absl::OkStatus();
      paced_.Add(now_, kPacedShare * limits_.max_resets_per_second, false);
      return Count(resets_, limits_.max_resets_per_second, "max_resets_per_second");
    case kSettings:
      acknowledged_ |= (header.flags & kAcknowledge) != 0;
      return Count(settings_, limits_.max_settings_per_second, "max_settings_per_second");
    case kWindowUpdate:
      return absl::OkStatus();  // its payload tells
    case kData:
      if ((header.flags & kEndStream) != 0) {
        if (header.length == 0) EndByClient(header.stream);
        return absl::OkStatus();
      }
      // gRPC takes as long for a frame of one byte as for one of 16 KiB.
      if (header.length < kSmallData) break;
      return absl::OkStatus();
    default:
      break;
  }
  return Count(idle_, limits_.max_idle_frames_per_second, "max_idle_frames_per_second");
}

absl::Status Http2Guard::OnPayload(const Http2Frames::Header& header, absl::string_view payload,
                                   bool last) {
  if (header.type == kData) {
    absl::Status status = OnMessageBytes(header.stream, payload);
    if (last && (header.flags & kEndStream) != 0) EndByClient(header.stream);
    return status;
  }
  if (header.type == kSettings) return OnSettingBytes(payload);
  if (header.type != kWindowUpdate) return absl::OkStatus();
  for (const char byte : payload) number_ = number_ << 8 | static_cast<uint8_t>(byte);
  if (!last || number_ >= kSmallUpdate) return absl::OkStatus();
  return Count(idle_, limits_.max_idle_frames_per_second, "max_idle_frames_per_second");
}

absl::Status Http2Guard::OnSettingBytes(absl::string_view bytes) {
  for (const char byte : bytes) {
    setting_ = setting_ << 8 | static_cast<uint8_t>(byte);
    if (++setting_have_ % kSettingBytes != 0) continue;
    const auto value = static_cast<uint32_t>(setting_);
    if ((setting_ >> 32 & 0xffff) != kInitialWindow || value >= kFewestWindowBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("HTTP/2: the client takes ", value, " bytes of an answer at first, and ",
                     kFewestWindowBytes, " are the fewest"));
  }
  return absl::OkStatus();
}

absl::Status Http2Guard::OpenStream(const Http2Frames::Header& header) {
  if (header.stream <= last_stream_) return absl::OkStatus();  // trailers, or gRPC's to refuse
  last_stream_ = header.stream;
  Stream stream;
  stream.opened = now_;
  streams_.emplace(header.stream, stream);
  ++unfinished_streams_;
  ++new_streams_;
  if (streams_.size() > MostStreams()) {
    return Over("max_concurrent_streams", limits_.max_concurrent_streams);
  }
  return absl::OkStatus();
}

absl::Status Http2Guard::AddToHeaderBlock(const Http2Frames::Header& header) {
  header_block_bytes_ += header.length;
  ++header_frames_;
  in_header_block_ = (header.flags & kEndHeaders) == 0;
  if (header_block_bytes_ > limits_.max_header_block_bytes) {
    return Over("max_header_block_bytes", limits_.max_header_block_bytes);
  }
  if (header_frames_ > limits_.max_header_frames) {
    return Over("max_header_frames", limits_.max_header_frames);
  }
  if (!in_header_block_) {
    has_request_ = true;
    idle_.Excuse(kIdleFramesEach);
    CountHeaders(last_header_stream_);
  }
  return absl::OkStatus();
}

void Http2Guard::CountHeaders(uint32_t id) {
  const auto it = streams_.find(id);
  if (it == streams_.end() || !it->second.unfinished) return;
  it->second.header_bytes += header_block_bytes_;
  unfinished_bytes_ += header_block_bytes_;
}

absl::Status Http2Guard::OnMessageBytes(uint32_t id, absl::string_view bytes) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return absl::OkStatus();  // ended by the server: gRPC drops the bytes
  Stream& stream = it->second;
  uint32_t held = stream.unfinished_bytes + kPieceBytes;
  int64_t further = stream.unfinished ? 0 : static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (stream.prefix_have < kPrefixBytes) {
      const uint8_t byte = static_cast<uint8_t>(bytes.front());
      bytes.remove_prefix(1);
      // The first byte says whether the message is compressed. gRPC unpacks a message before it
      // looks at the limit of its size.
      if (stream.prefix_have == 0 && byte != 0) {
        return absl::InvalidArgumentError(
            "HTTP/2: a message is compressed, which this server does not take");
      }
      if (stream.prefix_have > 0) stream.message_left = stream.message_left << 8 | byte;
      ++stream.prefix_have;
      ++held;
      if (stream.prefix_have < kPrefixBytes || stream.message_left > 0) continue;
    }
    const size_t take = std::min<size_t>(bytes.size(), stream.message_left);
    bytes.remove_prefix(take);
    stream.message_left -= static_cast<uint32_t>(take);
    held += static_cast<uint32_t>(take);
    if (stream.message_left > 0) break;
    // Complete: from now on the first one counts where calls do. Others stay in gRPC until the
    // service asks for them.
    if (stream.unfinished) further = static_cast<int64_t>(bytes.size());
    FinishRequest(stream);
    held = bytes.empty() ? 0 : kPieceBytes;
    stream.prefix_have = 0;
    idle_.Excuse(kIdleFramesEach);
  }
  unfinished_bytes_ += int64_t{held} - stream.unfinished_bytes;
  stream.unfinished_bytes = held;
  AddFurtherBytes(stream, further);
  if (unfinished_bytes_ > limits_.max_unfinished_bytes) {
    return Over("max_unfinished_bytes", limits_.max_unfinished_bytes);
  }
  return absl::OkStatus();
}

absl::Status Http2Guard::Count(RateCount& use, int per_second, absl::string_view limit) {
  return use.Add(now_, per_second, suspect_) ? absl::OkStatus() : Over(limit, per_second);
}

size_t Http2Guard::MostStreams() const {
  if (limits_.max_concurrent_streams <= 0) return std::numeric_limits<size_t>::max() / 2;
  return static_cast<size_t>(limits_.max_concurrent_streams) + (acknowledged_ ? 0 : kStreamSlack);
}

absl::Duration Http2Guard::Pause() const {
  const double rate = kPacedShare * limits_.max_resets_per_second;
  const double level = paced_.Level(now_, rate);
  if (level < limits_.max_resets_at_once) return absl::ZeroDuration();
  return absl::Seconds((level - limits_.max_resets_at_once / 2.0) / rate);
}

std::string Http2Guard::ResetStreams(size_t most) {
  std::string frames;
  for (; most > 0 && !streams_.empty(); --most) {
    AppendNumber(4, 3, &frames);
    frames.push_back(kResetStream);
    frames.push_back(0);
    AppendNumber(streams_.begin()->first, 4, &frames);
    AppendNumber(kCancel, 4, &frames);
    End(streams_.begin()->first);
  }
  return frames;
}

void Http2Guard::FinishRequest(Stream& stream) {
  if (!std::exchange(stream.unfinished, false)) return;
  --unfinished_streams_;
  unfinished_bytes_ -= std::exchange(stream.header_bytes, 0);
}

void Http2Guard::EndByClient(uint32_t id) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  FinishRequest(it->second);
  unfinished_bytes_ -= it->second.unfinished_bytes;
  it->second.unfinished_bytes = 0;
}

bool Http2Guard::EndsEarly(uint32_t id) {
  auto it = streams_.find(id);
  // gRPC's clients reset streams that the server has ended, too.
  const bool early = it != streams_.end() && now_ - it->second.opened < kRapid;
  End(id);
  return early;
}

void Http2Guard::End(uint32_t id) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  unfinished_bytes_ -= it->second.unfinished_bytes;
  AddFurtherBytes(it->second, -it->second.further_bytes);
  FinishRequest(it->second);
  streams_.erase(it);
}

void Http2Guard::AddFurtherBytes(Stream& stream, int64_t more) {
  const int64_t before = std::exchange(stream.further_bytes, stream.further_bytes + more);
  unfinished_bytes_ += std::max<int64_t>(stream.further_bytes, 0) - std::max<int64_t>(before, 0);
}

void Http2Guard::OnSent(absl::string_view bytes) {
  absl::string_view payload;
  while (true) {
    const Http2Frames::Step step = sent_.Next(&bytes, &payload);
    if (step == Http2Frames::Step::kMore) return;
    const Http2Frames::Header& header = sent_.header();
    if (step == Http2Frames::Step::kPayload) {
      if (header.type != kWindowUpdate) continue;
      for (const char byte : payload) sent_number_ = sent_number_ << 8 | static_cast<uint8_t>(byte);
      if (sent_.payload_left() > 0) continue;
      // gRPC gives room to a stream whose service reads.
      const auto it = streams_.find(header.stream);
      if (it != streams_.end() && !it->second.unfinished) {
        AddFurtherBytes(it->second, -static_cast<int64_t>(sent_number_ & 0x7fffffff));
      }
      continue;
    }
    sent_number_ = 0;
    const bool ends = (header.type == kData || header.type == kHeaders)
                          ? (header.flags & kEndStream) != 0
                          : header.type == kResetStream;
    if (ends) End(header.stream);
  }
}

}  // namespace cohort
