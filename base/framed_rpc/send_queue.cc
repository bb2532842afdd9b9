#include "base/framed_rpc/send_queue.h"

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "absl/types/span.h"

namespace cohort::framed_rpc {
namespace {

// A copy of fewer bytes is cheaper than a shared chunk.
constexpr size_t kSharedFrom = 2048;
// The size of a chunk of copies; a bounded chunk is freed soon after its bytes were sent.
constexpr size_t kChunkBytes = size_t{64} << 10;
constexpr size_t kMaxPieces = 64;
// Room for a header and the small answer behind it. A queue that is empty keeps so much.
constexpr size_t kFirstBytes = 256;
// The memory of a shared chunk and of the small one before it.
constexpr size_t kSharedChunkBytes = 256;

}  // namespace

void SendQueue::Append(absl::string_view bytes) {
  if (bytes.empty()) return;
  if (chunks_.empty() || chunks_.back().keep != nullptr ||
      chunks_.back().own.size() + bytes.size() > kChunkBytes) {
    const size_t room = chunks_.empty() ? std::max(bytes.size(), kFirstBytes) : bytes.size();
    chunks_.emplace_back().own.reserve(room);
  }
  chunks_.back().own.append(bytes.data(), bytes.size());
  chunks_.back().own_size += bytes.size();
  size_ += bytes.size();
  own_size_ += bytes.size();
}

void SendQueue::AppendShared(const SharedBytes& piece) {
  if (piece.bytes.size() < kSharedFrom || piece.keep == nullptr) return Append(piece.bytes);
  Chunk& chunk = chunks_.emplace_back();
  chunk.keep = piece.keep;
  chunk.shared = piece.bytes;
  chunk.own_size = kSharedChunkBytes + (piece.own ? piece.bytes.size() : 0);
  size_ += piece.bytes.size();
  own_size_ += chunk.own_size;
}

ssize_t SendQueue::SendChunks(const StreamSocket& socket) const {
  absl::string_view first = chunks_.front().bytes();
  first.remove_prefix(front_);
  if (chunks_.size() == 1) return socket.Send(first);
  std::array<iovec, kMaxPieces> pieces;
  const size_t count = std::min(chunks_.size(), kMaxPieces);
  for (size_t i = 0; i < count; ++i) {
    const absl::string_view bytes = i == 0 ? first : chunks_[i].bytes();
    pieces[i] = iovec{const_cast<char*>(bytes.data()), bytes.size()};
  }
  return socket.Send(absl::MakeConstSpan(pieces.data(), count));
}

SendQueue::Flushed SendQueue::Flush(const StreamSocket& socket) {
  while (size_ > 0) {
    const ssize_t sent = SendChunks(socket);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? Flushed::kPartly : Flushed::kBroken;
    }
    Drop(static_cast<size_t>(sent));
  }
  return Flushed::kAll;
}

void SendQueue::Drop(size_t bytes) {
  size_ -= bytes;
  front_ += bytes;
  while (!chunks_.empty() && front_ >= chunks_.front().bytes().size()) {
    Chunk& front = chunks_.front();
    front_ -= front.bytes().size();
    own_size_ -= front.own_size;
    if (chunks_.size() == 1 && front.keep == nullptr && front.own.capacity() == kFirstBytes) {
      front.own.clear();
      front.own_size = 0;
      return;
    }
    chunks_.pop_front();
  }
}

}  // namespace cohort::framed_rpc
