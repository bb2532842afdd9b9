// The first stream between two ranks: frames out, frames in.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_LINK_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/threads/mutex.h"
#include "worker/communicator/socket/mesh/rank_socket.h"
#include "worker/communicator/socket/transfer/link_frame.h"

namespace cohort::worker {

// Why a socket has ended, from the result of a call: "connection closed by it", ...
std::string ReasonOfEnd(ssize_t result, int error);

// Sending is thread-safe; receiving is confined to one thread at a time.
class Link {
 public:
  // Receives the frames that arrive. An error says how the peer broke the protocol.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Sets `sink` to the memory for the payload, if there is one; null drops it.
    virtual absl::Status OnHeader(Link& link, const FrameHeader& header, char** sink) = 0;
    virtual absl::Status OnFrame(Link& link, const FrameHeader& header) = 0;
  };

  Link(int rank, RankSocket socket) : rank_(rank), socket_(std::move(socket)) {}

  int rank() const { return rank_; }
  int fd() const { return socket_.fd(); }

  // Bytes that the socket does not take immediately are copied, and wait for Flush.
  void Send(const FrameHeader& header, absl::string_view payload = {});
  // Like Send; every later Send is dropped.
  void SendLast(const FrameHeader& header, absl::string_view payload = {});
  void Flush();
  bool has_unsent() const { return has_unsent_.load(std::memory_order_relaxed); }
  // Whether the frames that were sent last may be lost: the other end takes no more.
  bool is_broken() const { return is_broken_.load(std::memory_order_relaxed); }
  // Called after SendLast, before the link is destroyed. Unread bytes then do not make the socket
  // drop the frames that were sent.
  void Close();

  // Reads the bytes that have arrived, through `landing`. Returns whether there were any.
  absl::StatusOr<bool> Read(Handler& handler, std::vector<char>& landing);
  // Whether Read has bytes although the socket is not readable.
  bool HasInput() const { return end_.empty() && socket_.stream().HasInput(); }
  // Why the link has ended; empty while it has not.
  const std::string& end() const { return end_; }
  // Whether the peer ended the link on purpose, or after all its frames. The data that it sent
  // earlier on other streams has then arrived, or will.
  bool ended_in_order() const { return in_order_; }
  void set_leaving() { leaving_ = true; }
  // Whether the other rank has said goodbye, and all that it sent was read.
  bool left() const { return leaving_ && !end_.empty(); }

 private:
  void SendLocked(const FrameHeader& header, absl::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Take(Handler& handler, const char* bytes, size_t count);
  absl::Status Filled(Handler& handler, size_t count);

  const int rank_;
  const RankSocket socket_;

  Mutex mutex_;
  std::string unsent_ ABSL_GUARDED_BY(mutex_);
  size_t unsent_at_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more is to be sent, or can be
  std::atomic<bool> has_unsent_{false};
  std::atomic<bool> is_broken_{false};

  char header_bytes_[sizeof(FrameHeader)];
  size_t header_got_ = 0;
  FrameHeader header_;
  char* sink_ = nullptr;
  size_t payload_left_ = 0;
  bool leaving_ = false;
  bool in_order_ = false;
  std::string end_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_LINK_H_
