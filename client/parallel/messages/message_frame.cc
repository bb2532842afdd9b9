#include "client/parallel/messages/message_frame.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/utf8.h"

namespace cohort::parallel {
namespace {

constexpr uint32_t kMagic = 0x474D4843;  // "CHMG"
constexpr uint8_t kVersion = 3;
constexpr int64_t kAligned = 16;  // the largest element's size
constexpr size_t kMetaBytes = 4;  // without the extents
// The most bytes of the elements behind one frame: as many as shared memory has room for.
constexpr uint64_t kMostBehind = 8 * kPieceBytes;
// The first allocation has room for so many tensors, because their number may be wrong.
constexpr size_t kReserved = 1024;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

constexpr auto kHeader = static_cast<size_t>(kFrameHeaderBytes);

// Compilers turn Put and Get into one store and one load.
template <typename T>
void Put(T value, char* to) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
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

// Takes the description of one tensor off the beginning of `bytes`.
absl::StatusOr<Elements> TakeMeta(absl::string_view* bytes, TensorMeta* meta) {
  if (bytes->size() < kMetaBytes) return Malformed("it ends within the description of a tensor");
  const auto type = Get<uint8_t>(*bytes, 0);
  const auto on_device = Get<uint8_t>(*bytes, 1);
  const auto elements = Get<uint8_t>(*bytes, 2);
  const auto dims = Get<uint8_t>(*bytes, 3);
  if (!IsDataType(type)) return Malformed(absl::StrCat("unknown data type ", type));
  if (on_device > 1 || elements > static_cast<uint8_t>(Elements::kBehind)) {
    return Malformed("a tensor with an unknown device or position of its elements");
  }
  bytes->remove_prefix(kMetaBytes);
  if (bytes->size() < dims * sizeof(int64_t)) return Malformed("it ends within a shape");
  meta->type = static_cast<DataType>(type);
  meta->on_device = on_device == 1;
  meta->shape.resize(dims);
  for (size_t i = 0; i < dims; ++i) {
    const auto extent = Get<int64_t>(*bytes, i * sizeof(int64_t));
    meta->shape[i] = extent;
    if (extent < 0) return Malformed(absl::StrCat("a tensor with the negative extent ", extent));
  }
  if (!CountableBytes(meta->type, meta->shape).has_value()) {
    return Malformed("a tensor whose size in bytes overflows");
  }
  bytes->remove_prefix(dims * sizeof(int64_t));
  // Empty tensors need no bytes; those on a GPU come later.
  const auto place = static_cast<Elements>(elements);
  if (ElementCount(meta->shape) == 0 ? place != Elements::kWithin
                                     : place != Elements::kLater && on_device == 1) {
    return Malformed("a tensor whose elements have a position that its device or size excludes");
  }
  return place;
}

}  // namespace

std::string EncodeFrame(Frame frame) {
  std::string bytes = std::move(frame.bytes);
  if (bytes.empty()) bytes.resize(kHeader);
  const uint64_t body_bytes = frame.body_later ? frame.body_bytes : bytes.size() - kHeader;
  char* const to = &bytes[0];
  Put(kMagic, to);
  Put(kVersion, to + 4);
  Put(uint8_t{0}, to + 5);
  Put(static_cast<uint8_t>(frame.kind), to + 6);
  Put(static_cast<uint8_t>(frame.body_later ? 1 : 0), to + 7);
  Put(frame.channel, to + 8);
  Put(frame.tensors, to + 12);
  Put(frame.number, to + 16);
  Put(body_bytes, to + 24);
  Put(frame.note_bytes, to + 32);
  Put(frame.large_bytes, to + 40);
  return bytes;
}

absl::StatusOr<Frame> DecodeFrameHeader(absl::string_view bytes) {
  if (bytes.size() < kHeader) return Malformed("it is too short");
  if (Get<uint32_t>(bytes, 0) != kMagic) {
    return Malformed("it does not begin with the magic number");
  }
  if (const auto version = Get<uint8_t>(bytes, 4); version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of version ", version, ", which should be ", kVersion));
  }
  if (Get<uint8_t>(bytes, 5) != 0) return Malformed("a reserved byte is not 0");
  const auto kind = Get<uint8_t>(bytes, 6);
  const auto later = Get<uint8_t>(bytes, 7);
  if (!IsFrameKind(kind)) return Malformed(absl::StrCat("unknown kind ", kind));
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
    return Malformed("the flag of a late body is invalid for this kind of frame");
  }
  if (frame.channel < 0) return Malformed(absl::StrCat("negative channel ", frame.channel));
  if (frame.note_bytes > frame.body_bytes ||
      frame.tensors > (frame.body_bytes - frame.note_bytes) / kMetaBytes) {
    return Malformed(absl::StrCat("a body of ", frame.body_bytes,
                                  " bytes is too short for a note of ", frame.note_bytes,
                                  " bytes and ", frame.tensors, " tensors"));
  }
  uint64_t all = 0;
  if (__builtin_add_overflow(frame.body_bytes, frame.large_bytes, &all) ||
      __builtin_add_overflow(all, uint64_t{kFrameHeaderBytes}, &all) || all > uint64_t{kMost}) {
    return Malformed("its size in bytes overflows");
  }
  return frame;
}

int64_t EncodedBytes(const Frame& frame) {
  return kFrameHeaderBytes + (frame.body_later ? 0 : static_cast<int64_t>(frame.body_bytes));
}

std::string EncodeStatus(const absl::Status& status) {
  constexpr size_t kText = kFrameBytes - kFrameHeaderBytes - 1;
  std::string bytes(kHeader + 1, '\0');
  bytes[kHeader] = static_cast<char>(status.code());
  absl::StrAppend(&bytes, CutUtf8(status.message(), kText));
  return bytes;
}

absl::Status DecodeStatus(absl::string_view body) {
  if (body.empty()) return absl::UnknownError("it does not say why");
  const auto code = static_cast<absl::StatusCode>(body[0]);
  const bool known = code > absl::StatusCode::kOk && code <= absl::StatusCode::kUnauthenticated;
  return absl::Status(known ? code : absl::StatusCode::kUnknown, body.substr(1));
}

std::string EncodeBody(absl::string_view note, absl::Span<const Tensor> tensors,
                       absl::Span<const Elements> elements) {
  size_t described = kHeader + note.size();
  for (const Tensor& tensor : tensors) {
    described += kMetaBytes + tensor.shape().size() * sizeof(int64_t);
  }
  const auto begin = static_cast<int64_t>(described - kHeader);
  int64_t end = begin;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (elements[i] == Elements::kWithin && tensors[i].count() > 0)
      end = Aligned(end) + tensors[i].bytes();
  }
  std::string bytes(kHeader + static_cast<size_t>(end), '\0');
  char* to = &bytes[kHeader];
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    Put(static_cast<uint8_t>(tensor.type()), to);
    Put(static_cast<uint8_t>(tensor.device().is_cuda() ? 1 : 0), to + 1);
    Put(static_cast<uint8_t>(elements[i]), to + 2);
    Put(static_cast<uint8_t>(tensor.dims()), to + 3);
    to += kMetaBytes;
    for (const int64_t extent : tensor.shape()) {
      Put(extent, to);
      to += sizeof(extent);
    }
  }
  if (!note.empty()) std::memcpy(to, note.data(), note.size());
  int64_t at = begin;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (elements[i] != Elements::kWithin || tensor.count() == 0) continue;
    at = Aligned(at);
    char* const place = &bytes[kHeader + static_cast<size_t>(at)];
    if (tensor.contiguous()) {
      std::memcpy(place, tensor.data(), static_cast<size_t>(tensor.bytes()));
    } else {
      CopyTensor(tensor, Tensor(place, tensor.type(), tensor.shape()))
          .IgnoreError();  // of one type and shape, on the host
    }
    at += tensor.bytes();
  }
  return bytes;
}

absl::StatusOr<Body> DecodeBody(const Frame& header, absl::string_view body) {
  if (body.size() != header.body_bytes) {
    return Malformed(
        absl::StrCat("a body of ", body.size(), " bytes, expected ", header.body_bytes));
  }
  constexpr int64_t kWithin = 0;
  Body decoded;
  const size_t room = std::min<size_t>(header.tensors, kReserved);
  decoded.metas.reserve(room);
  decoded.places.reserve(room);
  absl::string_view rest = body;
  uint64_t large = 0;
  uint64_t behind = 0;
  for (uint32_t i = 0; i < header.tensors; ++i) {
    TensorMeta& meta = decoded.metas.emplace_back();
    COHORT_ASSIGN_OR_RETURN(const Elements elements, TakeMeta(&rest, &meta));
    decoded.places.push_back(elements == Elements::kWithin   ? kWithin
                             : elements == Elements::kBehind ? Body::kBehind
                                                             : Body::kLater);
    if (elements == Elements::kWithin) continue;
    uint64_t& bytes = elements == Elements::kBehind ? behind : large;
    if (__builtin_add_overflow(bytes, static_cast<uint64_t>(meta.bytes()), &bytes)) {
      return Malformed("the size of its tensors in bytes overflows");
    }
  }
  if (large != header.large_bytes) {
    return Malformed(
        absl::StrCat("large tensors of ", large, " bytes, expected ", header.large_bytes));
  }
  if (behind > kMostBehind || (behind > 0 && (large > 0 || header.body_later))) {
    return Malformed(absl::StrCat(behind, " bytes of tensors follow the frame: at most ",
                                  kMostBehind,
                                  " may, and none beside large tensors or a late body"));
  }
  decoded.behind_bytes = static_cast<int64_t>(behind);
  if (rest.size() < header.note_bytes) return Malformed("it ends within its note");
  decoded.note = std::string(rest.substr(0, header.note_bytes));
  auto at = static_cast<int64_t>(body.size() - rest.size() + header.note_bytes);
  const auto end = static_cast<int64_t>(body.size());
  for (size_t i = 0; i < decoded.metas.size(); ++i) {
    if (decoded.places[i] < 0) continue;
    const int64_t bytes = decoded.metas[i].bytes();
    if (bytes > 0) at = Aligned(at);
    if (at > end || bytes > end - at) return Malformed("it ends within a tensor's elements");
    decoded.places[i] = at;
    at += bytes;
  }
  if (at != end) return Malformed(absl::StrCat(end - at, " unused bytes at the end of the body"));
  return decoded;
}

}  // namespace cohort::parallel
