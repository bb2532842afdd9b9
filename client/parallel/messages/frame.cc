#include "client/parallel/messages/frame.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

constexpr uint32_t kMagic = 0x474D4843;  // "CHMG"
constexpr uint16_t kVersion = 1;
constexpr int64_t kAligned = 16;  // the largest element's size
constexpr size_t kMetaBytes = 4;  // without the extents
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

template <typename T>
void Put(T value, std::string* to) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T Get(absl::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

int64_t Aligned(int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a malformed message: ", what));
}

bool IsFrameKind(uint8_t kind) {
  return kind >= static_cast<uint8_t>(FrameKind::kMessage) &&
         kind <= static_cast<uint8_t>(FrameKind::kGo);
}

// Of one tensor's description at the beginning of `bytes`, which it is taken from.
absl::StatusOr<std::pair<TensorMeta, bool>> TakeMeta(absl::string_view* bytes) {
  if (bytes->size() < kMetaBytes) return Malformed("it ends within a tensor");
  const auto type = Get<uint8_t>(*bytes, 0);
  const auto on_device = Get<uint8_t>(*bytes, 1);
  const auto within = Get<uint8_t>(*bytes, 2);
  const auto dims = Get<uint8_t>(*bytes, 3);
  if (!IsDataType(type)) return Malformed(absl::StrCat(type, " is no type"));
  if (on_device > 1 || within > 1) return Malformed("a tensor that is nowhere");
  bytes->remove_prefix(kMetaBytes);
  if (bytes->size() < dims * sizeof(int64_t)) return Malformed("it ends within a shape");
  TensorMeta meta;
  meta.type = static_cast<DataType>(type);
  meta.on_device = on_device == 1;
  meta.shape.resize(dims);
  int64_t size = SizeOf(meta.type);
  bool empty = false;
  for (size_t i = 0; i < dims; ++i) {
    const auto extent = Get<int64_t>(*bytes, i * sizeof(int64_t));
    meta.shape[i] = extent;
    if (extent < 0) return Malformed("a negative extent");
    if (extent == 0) empty = true;
    // Also of an empty tensor: whoever leaves out the 0 must not overflow.
    if (__builtin_mul_overflow(size, std::max<int64_t>(extent, 1), &size)) {
      return Malformed("a tensor of more bytes than memory has addresses");
    }
  }
  bytes->remove_prefix(dims * sizeof(int64_t));
  // Empty ones need no place, others of a GPU cannot be within.
  if (empty ? within == 0 : within == 1 && on_device == 1) {
    return Malformed("a tensor that is where it cannot be");
  }
  return std::make_pair(std::move(meta), within == 1);
}

}  // namespace

std::string EncodeFrame(const Frame& frame) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(kFrameHeaderBytes) + frame.body.size());
  Put(kMagic, &bytes);
  Put(kVersion, &bytes);
  Put(static_cast<uint8_t>(frame.kind), &bytes);
  Put(static_cast<uint8_t>(frame.body_later ? 1 : 0), &bytes);
  Put(frame.channel, &bytes);
  Put(frame.tensors, &bytes);
  Put(frame.number, &bytes);
  Put(frame.body_later ? frame.body_bytes : uint64_t{frame.body.size()}, &bytes);
  Put(frame.note_bytes, &bytes);
  Put(frame.large_bytes, &bytes);
  if (!frame.body_later) bytes += frame.body;
  return bytes;
}

absl::StatusOr<Frame> DecodeFrameHeader(absl::string_view bytes) {
  if (bytes.size() < static_cast<size_t>(kFrameHeaderBytes)) return Malformed("it is too short");
  if (Get<uint32_t>(bytes, 0) != kMagic) return Malformed("it does not begin as messages do");
  if (const auto version = Get<uint16_t>(bytes, 4); version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of version ", version, ", which should be ", kVersion));
  }
  const auto kind = Get<uint8_t>(bytes, 6);
  const auto later = Get<uint8_t>(bytes, 7);
  if (!IsFrameKind(kind)) return Malformed(absl::StrCat("kind ", kind));
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  frame.body_later = later == 1;
  frame.channel = Get<int32_t>(bytes, 8);
  frame.tensors = Get<uint32_t>(bytes, 12);
  frame.number = Get<uint64_t>(bytes, 16);
  frame.body_bytes = Get<uint64_t>(bytes, 24);
  frame.note_bytes = Get<uint64_t>(bytes, 32);
  frame.large_bytes = Get<uint64_t>(bytes, 40);
  if (later > 1 || (frame.body_later && frame.kind != FrameKind::kMessage)) {
    return Malformed("a body that comes at no time");
  }
  if (frame.channel < 0) return Malformed(absl::StrCat("channel ", frame.channel));
  if (frame.note_bytes > frame.body_bytes ||
      frame.tensors > (frame.body_bytes - frame.note_bytes) / kMetaBytes) {
    return Malformed("a body too short for what is in it");
  }
  uint64_t all = 0;
  if (__builtin_add_overflow(frame.body_bytes, frame.large_bytes, &all) ||
      __builtin_add_overflow(all, uint64_t{kFrameHeaderBytes}, &all) || all > uint64_t{kMost}) {
    return Malformed("more bytes than memory has addresses");
  }
  return frame;
}

int64_t EncodedBytes(const Frame& frame) {
  return kFrameHeaderBytes + (frame.body_later ? 0 : static_cast<int64_t>(frame.body_bytes));
}

std::string EncodeStatus(const absl::Status& status) {
  constexpr size_t kText = kFrameBytes - kFrameHeaderBytes - 1;
  std::string body(1, static_cast<char>(status.code()));
  absl::StrAppend(&body, status.message().substr(0, kText));
  return body;
}

absl::Status DecodeStatus(absl::string_view body) {
  if (body.empty()) return absl::UnknownError("it does not say why");
  const auto code = static_cast<absl::StatusCode>(body[0]);
  const bool known = code > absl::StatusCode::kOk && code <= absl::StatusCode::kUnauthenticated;
  return absl::Status(known ? code : absl::StatusCode::kUnknown, body.substr(1));
}

std::string EncodeBody(absl::string_view note, absl::Span<const Tensor> tensors,
                       const std::vector<bool>& within) {
  std::string body;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    Put(static_cast<uint8_t>(tensor.type()), &body);
    Put(static_cast<uint8_t>(tensor.device().is_cuda() ? 1 : 0), &body);
    Put(static_cast<uint8_t>(within[i] ? 1 : 0), &body);
    Put(static_cast<uint8_t>(tensor.dims()), &body);
    for (const int64_t extent : tensor.shape()) Put(extent, &body);
  }
  absl::StrAppend(&body, note);
  int64_t bytes = static_cast<int64_t>(body.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (within[i] && tensors[i].bytes() > 0) bytes = Aligned(bytes) + tensors[i].bytes();
  }
  int64_t at = static_cast<int64_t>(body.size());
  body.resize(static_cast<size_t>(bytes));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (!within[i] || tensor.bytes() == 0) continue;
    at = Aligned(at);
    CopyTensor(tensor, Tensor(&body[static_cast<size_t>(at)], tensor.type(), tensor.shape()))
        .IgnoreError();  // of one type and shape, on the host
    at += tensor.bytes();
  }
  return body;
}

absl::StatusOr<Body> DecodeBody(const Frame& header, absl::string_view body) {
  if (body.size() != header.body_bytes) return Malformed("a body of another length");
  Body decoded;
  absl::string_view rest = body;
  std::vector<bool> within;
  uint64_t large = 0;
  for (uint32_t i = 0; i < header.tensors; ++i) {
    COHORT_ASSIGN_OR_RETURN(auto described, TakeMeta(&rest));
    within.push_back(described.second);
    const auto bytes = static_cast<uint64_t>(described.first.bytes());
    if (!described.second && __builtin_add_overflow(large, bytes, &large)) {
      return Malformed("more bytes than memory has addresses");
    }
    decoded.metas.push_back(std::move(described.first));
  }
  if (large != header.large_bytes) return Malformed("tensors of another length");
  if (rest.size() < header.note_bytes) return Malformed("it ends within its note");
  decoded.note = std::string(rest.substr(0, header.note_bytes));
  auto at = static_cast<int64_t>(body.size() - rest.size() + header.note_bytes);
  const auto end = static_cast<int64_t>(body.size());
  for (size_t i = 0; i < within.size(); ++i) {
    const int64_t bytes = decoded.metas[i].bytes();
    if (!within[i] || bytes == 0) {
      decoded.places.push_back(within[i] ? at : -1);
      continue;
    }
    at = Aligned(at);
    if (at > end || bytes > end - at) return Malformed("it ends within a tensor's elements");
    decoded.places.push_back(at);
    at += bytes;
  }
  if (at != end) return Malformed("more than what is in it");
  return decoded;
}

}  // namespace cohort::parallel
