// The wire format of messages between two ranks: frames, and the body that describes the tensors.
//
// A frame is a header of 48 bytes, numbers with the lowest byte first, and the bytes after it. It
// travels in pieces of kPieceBytes, of which the last may be shorter.
//
//   0 magic      u32    12 tensors    u32    32 note bytes    u64
//   4 version    u8     16 number     u64    40 large bytes   u64
//   5 0          u8     24 body bytes u64    48 the body, unless it comes later
//   6 kind       u8
//   7 body later u8
//   8 channel    i32
//
// The body of a message has for each tensor its type, its place, where its elements travel, the
// number of dimensions, and its extents. Then come the note and the elements of the tensors within,
// each at a multiple of 16 bytes. Elements that go behind the frame follow it, in the order of the
// tensors, in pieces of kPieceBytes.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_FRAME_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_FRAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/tensor/tensor.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

inline constexpr int64_t kFrameHeaderBytes = 48;
// The most bytes of a frame with a status. Many frames of messages are not larger.
inline constexpr int64_t kFrameBytes = 512;
// The most bytes of a piece: shared memory takes so much without waiting.
inline constexpr int64_t kPieceBytes = int64_t{8} << 10;

enum class FrameKind : uint8_t {
  kMessage = 1,  // with all of the message, or an announcement of the part to grant
  kFailed = 2,   // in place of a message that its sender could not send: a status
  kGrant = 3,    // the receiver of message `number` takes its next part
  kReject = 4,   // the receiver does not take it: a status
  kGo = 5,       // the granted part of message `number` follows
};

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  // The body is too long to be sent unasked; it follows once the receiver grants it.
  bool body_later = false;
  int32_t channel = 0;
  uint32_t tensors = 0;
  uint64_t number = 0;      // of the message, counted by its sender for this receiver
  uint64_t body_bytes = 0;  // set by EncodeFrame, unless the body comes later
  uint64_t note_bytes = 0;
  uint64_t large_bytes = 0;  // of tensors that travel by themselves
  // For a frame to send: the tensors whose elements go behind it.
  absl::InlinedVector<const Tensor*, 1> behind;
  // Room for the header and then the body, as EncodeBody and EncodeStatus make it; or the received
  // bytes. Empty: there is no body, or it comes later.
  std::string bytes;

  absl::string_view body() const {
    return bytes.empty() ? absl::string_view()
                         : absl::string_view(bytes).substr(static_cast<size_t>(kFrameHeaderBytes));
  }
};

// Returns the frame with its body, in the memory of frame.bytes. Precondition: the body is there or
// comes later.
std::string EncodeFrame(Frame frame);
// Decodes a header, without the body; `bytes` has at least kFrameHeaderBytes. Errors:
// INVALID_ARGUMENT (no rank sends such a header).
absl::StatusOr<Frame> DecodeFrameHeader(absl::string_view bytes);
// The length of a frame with a decoded header and all of its body that is sent with it. Fits
// int64_t.
int64_t EncodedBytes(const Frame& frame);

// A status as the bytes of a kFailed or kReject frame, with room for the header. A status that is
// too long for kFrameBytes is cut.
std::string EncodeStatus(const absl::Status& status);
// Never OK, whatever bytes arrived.
absl::Status DecodeStatus(absl::string_view body);

// Where the elements of a tensor go.
enum class Elements : uint8_t {
  kLater = 0,   // in a transfer of their own, after a grant
  kWithin = 1,  // with the body; only for host tensors, and for tensors without elements
  kBehind = 2,  // right behind the frame; only for host tensors
};

struct Body {
  static constexpr int64_t kLater = -1;
  static constexpr int64_t kBehind = -2;

  std::string note;
  std::vector<TensorMeta> metas;
  // By tensor: where in the body its elements are, or kLater, or kBehind.
  absl::InlinedVector<int64_t, 4> places;
  int64_t behind_bytes = 0;
};

// The bytes of a frame: room for its header, and the body. `elements` is by tensor.
std::string EncodeBody(absl::string_view note, absl::Span<const Tensor> tensors,
                       absl::Span<const Elements> elements);
// Decodes a body that the frame's header announces. It allocates no more than the bytes need.
// Errors: INVALID_ARGUMENT (the body, or the sum of its tensors, differs from the header).
absl::StatusOr<Body> DecodeBody(const Frame& header, absl::string_view body);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_FRAME_H_
