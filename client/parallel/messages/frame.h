// How messages between two ranks look on the way: frames, and the body that says what comes.
//
// A frame is 48 bytes of numbers, the lowest byte first, and what follows them. The first
// kFrameBytes of it travel alone, padded, because who receives must know how many bytes come; if
// there are more, they follow as a second piece.
//
//   0 magic      u32    12 tensors    u32    32 note bytes    u64
//   4 version    u16    16 number     u64    40 large bytes   u64
//   6 kind       u8     24 body bytes u64    48 the body, unless it comes later
//   7 body later u8
//   8 channel    i32
//
// The body of a message: of each tensor its type, where it is, whether it is within the body, how
// many dimensions, and its extents; the note; the elements of the tensors that are within, each at
// a multiple of 16 bytes.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/tensor.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

inline constexpr int64_t kFrameBytes = 512;
inline constexpr int64_t kFrameHeaderBytes = 48;

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
  std::string body;
};

// With its body, unpadded. Precondition: the body is there, or comes later.
std::string EncodeFrame(const Frame& frame);
// Of at least kFrameHeaderBytes; without the body. Errors: INVALID_ARGUMENT, what no rank sends.
absl::StatusOr<Frame> DecodeFrameHeader(absl::string_view bytes);
// Of a decoded header: how long all of it is that is sent with it. Fits int64_t.
int64_t EncodedBytes(const Frame& frame);

// A status as the body of kFailed and kRefusal, cut where it is too long for one frame.
std::string EncodeStatus(const absl::Status& status);
// Never OK, whatever came.
absl::Status DecodeStatus(absl::string_view body);

struct Body {
  std::string note;
  std::vector<TensorMeta> metas;
  // By tensor: where its elements are, of the body; -1: not within.
  std::vector<int64_t> places;
};

// `within`: by tensor, whether its elements go with the body; those are in memory of the host.
std::string EncodeBody(absl::string_view note, absl::Span<const Tensor> tensors,
                       const std::vector<bool>& within);
// As the frame's header announces it. Nothing is allocated that is not there. Errors:
// INVALID_ARGUMENT: it is not what the header says; nor, added up, are its tensors.
absl::StatusOr<Body> DecodeBody(const Frame& header, absl::string_view body);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_FRAME_H_
