// The wire format of framed RPC: unary calls of the proto surface in plain frames on a connection
// of their own, beside gRPC on the same port.
//
// A client opens with kPreface; the server answers kPreface and a frame kHello whose body has the
// full names of its methods, one per line: calls name a method by its number in that list. A client
// with a bearer token sends it behind its preface, as the body of a frame kToken. Another frame
// kToken replaces the token for the calls behind it. A server that calls for a client of its own
// sends the names of that client behind them (base/access/peer_names.h), once, as the body of a
// frame kClient. After the greeting either side sends frames: a header of 16 bytes, little endian,
// and a body.
//
//   offset  size
//        0     4  size of the body
//        4     4  call: chosen by the client, unique among its calls in flight
//        8     1  kind
//        9     1  status code (kReply)
//       10     2  method (kCall)
//       12     4  time left in ms, kNoTimeout for ever (kCall); size of the text (failed kReply)
//
// The body of a call is its serialised request; of a reply, the serialised response, or text and
// error details when the status is not OK.
//
// A call that streams is answered by frames kPart, each with a response as its body, and at its end
// by a kReply without a body. The server sends a part once the client has asked for it by kNext;
// the call itself asks for the first one.
#ifndef COHORT_BASE_FRAMED_RPC_FRAME_H_
#define COHORT_BASE_FRAMED_RPC_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::framed_rpc {

// As long as the part of HTTP/2's preface that tells the two apart.
inline constexpr absl::string_view kPreface = "COHORT/1";
inline constexpr size_t kHeaderBytes = 16;
inline constexpr uint32_t kNoTimeout = 0xffffffff;

enum class Kind : uint8_t {
  kHello = 1,
  kCall = 2,
  kCancel = 3,
  kReply = 4,
  kToken = 5,
  kPart = 6,
  kNext = 7,
  kClient = 8
};

struct Header {
  uint32_t body_bytes = 0;
  uint32_t call = 0;
  Kind kind = Kind::kHello;
  uint8_t code = 0;
  uint16_t method = 0;
  uint32_t extra = 0;
};

// Writes to `to`, which has room for kHeaderBytes.
void WriteHeader(const Header& header, char* to);
void AppendHeader(const Header& header, std::string* out);

struct Frame {
  Header header;
  absl::string_view body;  // into the reader's buffer, until its next Consume
};

// Cuts a stream of bytes into frames. Confined to one thread at a time.
class FrameReader {
 public:
  enum class Next {
    kFrame,
    kMore,      // needs more bytes
    kTooLarge,  // `frame` has the header only; the reader skips the body
    kBroken,    // not this protocol
  };

  explicit FrameReader(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Returns room for at least `bytes` more bytes behind those that are held. The caller reads into
  // it and calls Filled with the number of bytes. std::bad_alloc changes nothing.
  char* Room(size_t bytes);
  // Treats the frame at the front like kTooLarge, because there is no memory for it, and frees the
  // part that has arrived. Returns false if no frame is at the front.
  bool GiveUpFrame(Frame* frame);
  size_t room() const { return buffer_.size() - end_; }
  void Filled(size_t bytes) { end_ += bytes; }

  // Returns the first `count` bytes, if they have arrived, and keeps them.
  bool Peek(size_t count, absl::string_view* bytes) const;
  void Skip(size_t count) { begin_ += count; }

  Next Read(Frame* frame);
  size_t held() const { return end_ - begin_; }
  // The memory of the held bytes.
  size_t memory() const { return held() == 0 ? 0 : buffer_.capacity(); }
  // How many more bytes the frame at the front needs; 0: not known.
  size_t wanted() const;
  // Most connections are idle most of the time, and hold no memory: they borrow `spare` to read,
  // and give it back unless a good part of a frame is left in it.
  void Borrow(std::string* spare);
  void GiveBack(std::string* spare);
  // Frees a buffer of more than `most_bytes`, unless as many bytes are held. Frames that were read
  // become invalid.
  void Shrink(size_t most_bytes);

 private:
  const size_t max_body_bytes_;
  std::string buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t skip_ = 0;  // bytes left to skip of the body of a frame that was too large
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_FRAME_H_
