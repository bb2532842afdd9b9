#include "tests/fuzz/parallel/frame_check.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/messages/message_frame.h"

namespace cohort::parallel::fuzz {
namespace {

constexpr size_t kHeader = static_cast<size_t>(kFrameHeaderBytes);
constexpr size_t kMostText = 2048;

absl::Status Broken(absl::string_view what) { return absl::InternalError(what); }

absl::Status CheckError(const absl::Status& error) {
  if (!absl::IsInvalidArgument(error)) return Broken(error.ToString());
  if (error.message().size() > kMostText) return Broken("an error is too long");
  return absl::OkStatus();
}

absl::Status CheckBody(const Frame& header, absl::string_view bytes, const Body& body) {
  if (body.note.size() != header.note_bytes) return Broken("a note of another length");
  if (body.metas.size() != header.tensors || body.places.size() != header.tensors) {
    return Broken("another number of tensors");
  }
  uint64_t apart = 0;
  int64_t behind = 0;
  for (size_t i = 0; i < body.metas.size(); ++i) {
    const int64_t size = body.metas[i].bytes();
    if (size < 0) return Broken("a tensor of fewer than no bytes");
    if (body.places[i] == Body::kLater) {
      apart += static_cast<uint64_t>(size);
    } else if (body.places[i] == Body::kBehind) {
      behind += size;
    } else if (static_cast<uint64_t>(body.places[i]) > bytes.size() ||
               static_cast<uint64_t>(size) > bytes.size() - static_cast<size_t>(body.places[i])) {
      return Broken("a tensor beyond the body");
    }
  }
  if (apart != header.large_bytes) return Broken("tensors of other bytes than announced");
  if (behind != body.behind_bytes) return Broken("other bytes behind it");
  return absl::OkStatus();
}

std::string Sample(FrameKind kind, absl::string_view note, const std::vector<Tensor>& tensors,
                   Elements elements) {
  Frame frame;
  frame.kind = kind;
  frame.channel = 3;
  frame.number = 9;
  frame.note_bytes = note.size();
  frame.tensors = static_cast<uint32_t>(tensors.size());
  for (const Tensor& tensor : tensors) {
    if (elements == Elements::kLater) frame.large_bytes += static_cast<uint64_t>(tensor.bytes());
  }
  frame.bytes = EncodeBody(note, tensors, std::vector<Elements>(tensors.size(), elements));
  return EncodeFrame(std::move(frame));
}

}  // namespace

absl::Status CheckFrame(absl::string_view input, bool* accepted) {
  if (input.size() < kHeader) return absl::OkStatus();  // callers never pass less
  absl::StatusOr<Frame> frame = DecodeFrameHeader(input);
  if (!frame.ok()) return CheckError(frame.status());
  if (EncodedBytes(*frame) < kFrameHeaderBytes) return Broken("a frame shorter than its header");
  absl::string_view body = input.substr(kHeader);
  if (frame->body_bytes > body.size()) return absl::OkStatus();  // the rest has not come yet
  body = body.substr(0, static_cast<size_t>(frame->body_bytes));

  if (DecodeStatus(body).ok()) return Broken("a status frame that decodes as OK");
  Frame again = *frame;
  if (!again.body_later) again.bytes = absl::StrCat(std::string(kHeader, '\0'), body);
  const std::string encoded = EncodeFrame(std::move(again));
  if (encoded != input.substr(0, encoded.size())) return Broken("another frame when encoded again");

  const absl::StatusOr<Body> decoded = DecodeBody(*frame, body);
  if (!decoded.ok()) return CheckError(decoded.status());
  COHORT_RETURN_IF_ERROR(CheckBody(*frame, body, *decoded));
  if (accepted != nullptr) *accepted = true;
  return absl::OkStatus();
}

std::vector<std::string> SampleFrames() {
  const Tensor small = Tensor::Zeros(DataType::kBF16, {3, 5});
  const Tensor empty = Tensor::Zeros(DataType::kC64, {0, 7});
  Frame grant;
  grant.kind = FrameKind::kGrant;
  grant.number = 4;
  Frame error = grant;
  error.kind = FrameKind::kReject;
  error.bytes = EncodeStatus(absl::ResourceExhaustedError("too large"));
  Frame later = grant;
  later.kind = FrameKind::kMessage;
  later.body_later = true;
  later.body_bytes = uint64_t{1} << 20;
  return {Sample(FrameKind::kMessage, "", {}, Elements::kWithin),
          Sample(FrameKind::kMessage, "17;4:3,8", {small, empty, small}, Elements::kWithin),
          Sample(FrameKind::kMessage, "a note", {small, small}, Elements::kLater),
          Sample(FrameKind::kMessage, "behind", {small, small}, Elements::kBehind),
          EncodeFrame(grant),
          EncodeFrame(error),
          EncodeFrame(later)};
}

}  // namespace cohort::parallel::fuzz
