// How messages between two ranks look on the way: frames, and the body that says what comes.
//
// A frame is 48 bytes of numbers, the lowest byte first, and what follows them. Because who
// receives must know how many bytes come, its first piece is as long as the frame before said,
// padded; the first frame's is kFrameBytes. If there are more, they follow in pieces of
// kPieceBytes.
//
//   0 magic      u32    12 tensors    u32    32 note bytes    u64
//   4 version    u8     16 number     u64    40 large bytes   u64
//   5 next piece u8     24 body bytes u64    48 the body, unless it comes later
//   6 kind       u8
//   7 body later u8
//   8 channel    i32
//
// The next piece is the first of the sender's next frame to the same rank, in units of
// kPieceUnit. Who sends messages of one size sends each in one piece.
//
// The body of a message: of each tensor its type, where it is, where its elements go, how many
// dimensions, and its extents; the note; the elements of the tensors that are within, each at a
// multiple of 16 bytes. Elements that go behind the frame follow it, the tensors' by their order,
// in pieces of kPieceBytes.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/tensor.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

inline constexpr int64_t kFrameHeaderBytes = 48;
// Of a first piece: of the first frame, and the least.
inline constexpr int64_t kFrameBytes = 512;
// The most of any piece: so much goes through memory that ranks share without waiting.
inline constexpr int64_t kPieceBytes = int64_t{8} << 10;
inline constexpr int64_t kPieceUnit = 256;

enum class FrameKind : uint8_t {
  kMessage = 1,  // with all of it, or with what is to be granted
  kFailed = 2,   // in place of a message that its sender could not send: a status
  kGrant = 3,    // the receiver of message `number` takes what comes next of it
  kRefusal = 4,  // it does not: a status
  kGo = 5,       // what was granted of message `number` follows
};

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  // The body is what comes next, once it is granted: it is too long to be sent unasked.
  bool body_later = false;
  int32_t channel = 0;
  uint32_t tensors = 0;
  uint64_t number = 0;      // of the message, counted by its sender for this receiver
  uint64_t body_bytes = 0;  // set by EncodeFrame, unless the body comes later
  uint64_t note_bytes = 0;
  uint64_t large_bytes = 0;  // of tensors that travel by themselves
  int64_t next_piece = kFrameBytes;
  // Of one to be sent: the tensors whose elements go behind it.
  absl::InlinedVector<const Tensor*, 1> behind;
  // Room for the header and the body behind it, as EncodeBody and EncodeStatus make it, or what has
  // come. Empty: there is no body, or it comes later.
  std::string bytes;

  absl::string_view body() const {
    return bytes.empty() ? absl::string_view()
                         : absl::string_view(bytes).substr(static_cast<size_t>(kFrameHeaderBytes));
  }
};

// The frame with its body, unpadded, in the memory of frame.bytes. Precondition: the body is there,
// or comes later; the next piece is a multiple of its unit, kFrameBytes to kPieceBytes.
std::string EncodeFrame(Frame frame);
// Of at least kFrameHeaderBytes; without the body. Errors: INVALID_ARGUMENT, what no rank sends.
absl::StatusOr<Frame> DecodeFrameHeader(absl::string_view bytes);
// Of a decoded header: how long all of it is that is sent with it. Fits int64_t.
int64_t EncodedBytes(const Frame& frame);

// A status as the bytes of a kFailed and kRefusal, with room for the header; cut where it is too
// long for one piece.
std::string EncodeStatus(const absl::Status& status);
// Never OK, whatever came.
absl::Status DecodeStatus(absl::string_view body);

// Where the elements of a tensor go.
enum class Elements : uint8_t {
  kLater = 0,   // by themselves, once they are granted
  kWithin = 1,  // with the body: of the host; also where there are none
  kBehind = 2,  // right behind the frame: of the host
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

// The bytes of a frame: room for its header, and the body. `elements`: by tensor.
std::string EncodeBody(absl::string_view note, absl::Span<const Tensor> tensors,
                       absl::Span<const Elements> elements);
// As the frame's header announces it. Nothing is allocated that is not there. Errors:
// INVALID_ARGUMENT: it is not what the header says; nor, added up, are its tensors.
absl::StatusOr<Body> DecodeBody(const Frame& header, absl::string_view body);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_H_
