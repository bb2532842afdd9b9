// One serialised message in pieces, so that replies share common pieces and large values are not
// copied. The message is the concatenation of the pieces (protobuf merges the parts of a message).
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_MESSAGE_BYTES_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_MESSAGE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/send_queue.h"

namespace cohort::coordinator {

// Appends the tag and length of a length-delimited field of `size` bytes. The caller appends the
// bytes.
inline void AppendFieldHeader(int field, size_t size, std::string* out) {
  constexpr int kLengthDelimited = 2;
  for (uint64_t value : {static_cast<uint64_t>(field) << 3 | kLengthDelimited, uint64_t{size}}) {
    for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
    out->push_back(static_cast<char>(value));
  }
}

class MessageBytes {
 public:
  using Piece = framed_rpc::SharedBytes;

  void Append(std::string bytes) {
    if (bytes.empty()) return;
    own_size_ += bytes.size();
    AppendShared(std::make_shared<const std::string>(std::move(bytes)));
    pieces_.back().own = true;
  }
  void AppendShared(std::shared_ptr<const std::string> bytes) {
    const absl::string_view view = *bytes;
    AppendShared(std::move(bytes), view);
  }
  void AppendShared(std::shared_ptr<const void> keep, absl::string_view bytes) {
    if (bytes.empty()) return;
    size_ += bytes.size();
    pieces_.push_back(Piece{std::move(keep), bytes, false});
  }

  size_t size() const { return size_; }
  // The bytes of pieces that only this message has. The owners of shared pieces count those.
  size_t own_size() const { return own_size_; }
  const absl::InlinedVector<Piece, 2>& pieces() const { return pieces_; }
  std::string Flatten() const {
    std::string flat;
    flat.reserve(size_);
    for (const Piece& piece : pieces_) flat.append(piece.bytes.data(), piece.bytes.size());
    return flat;
  }

 private:
  size_t size_ = 0;
  size_t own_size_ = 0;
  absl::InlinedVector<Piece, 2> pieces_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_MESSAGE_BYTES_H_
