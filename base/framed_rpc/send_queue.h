// A queue of bytes for a socket that may not take them all at once.
#ifndef COHORT_BASE_FRAMED_RPC_SEND_QUEUE_H_
#define COHORT_BASE_FRAMED_RPC_SEND_QUEUE_H_

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/tls/stream_socket.h"

namespace cohort::framed_rpc {

// Bytes that are kept without a copy.
struct SharedBytes {
  // Keeps `bytes` alive and unchanged.
  std::shared_ptr<const void> keep;
  absl::string_view bytes;
  bool own = false;  // only one message has them
};

// Confined to one thread at a time.
class SendQueue {
 public:
  enum class Flushed { kAll, kPartly, kBroken };

  // Copies `bytes`.
  void Append(absl::string_view bytes);
  // Shares the bytes where that is cheaper than a copy. Bytes that only one message has count in
  // own_size().
  void AppendShared(const SharedBytes& piece);

  // Writes as much as the socket takes now.
  Flushed Flush(const StreamSocket& socket);
  size_t size() const { return size_; }
  // Memory of this queue alone. A chunk counts as a whole until all of it is written.
  size_t own_size() const { return own_size_; }

 private:
  struct Chunk {
    std::string own;
    std::shared_ptr<const void> keep;
    absl::string_view shared;  // when `keep` is set
    size_t own_size = 0;       // of the queue's own_size

    absl::string_view bytes() const { return keep == nullptr ? absl::string_view(own) : shared; }
  };

  // Returns what send(2) returns.
  ssize_t SendChunks(const StreamSocket& socket) const;
  void Drop(size_t bytes);

  std::deque<Chunk> chunks_;
  size_t front_ = 0;  // bytes of the first chunk that were written
  size_t size_ = 0;
  size_t own_size_ = 0;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SEND_QUEUE_H_
