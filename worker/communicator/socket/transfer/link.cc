#include "worker/communicator/socket/transfer/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

bool IsNothing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

std::string ReasonOfEnd(ssize_t result, int error) {
  if (result == 0 || error == EPIPE) return "connection closed by it";
  if (error == ECONNRESET) return "connection reset by it";
  if (error == ETIMEDOUT) return "connection timed out";
  return strerror(error);
}

void Link::Send(const FrameHeader& header, absl::string_view payload) {
  MutexLock lock(&mutex_);
  SendLocked(header, payload);
}

void Link::SendLast(const FrameHeader& header, absl::string_view payload) {
  MutexLock lock(&mutex_);
  SendLocked(header, payload);
  closed_ = true;
}

void Link::SendLocked(const FrameHeader& header, absl::string_view payload) {
  if (closed_) return;
  const absl::string_view frame(reinterpret_cast<const char*>(&header), sizeof(header));
  size_t sent = 0;
  if (!has_unsent()) {
    iovec pieces[] = {{const_cast<char*>(frame.data()), frame.size()},
                      {const_cast<char*>(payload.data()), payload.size()}};
    const ssize_t result =
        socket_.stream().Send(absl::MakeConstSpan(pieces, payload.empty() ? 1 : 2));
    if (result < 0 && !IsNothing(errno)) {
      closed_ = true;
      is_broken_.store(true, std::memory_order_relaxed);
      return;
    }
    sent = result < 0 ? 0 : static_cast<size_t>(result);
    if (sent == frame.size() + payload.size()) return;
  }
  const size_t of_frame = std::min(sent, frame.size());
  absl::StrAppend(&unsent_, frame.substr(of_frame), payload.substr(sent - of_frame));
  has_unsent_.store(true, std::memory_order_relaxed);
}

void Link::Flush() {
  MutexLock lock(&mutex_);
  while (unsent_at_ < unsent_.size()) {
    const ssize_t sent = socket_.stream().Send(absl::string_view(unsent_).substr(unsent_at_));
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (IsNothing(errno)) return;
      closed_ = true;
      is_broken_.store(true, std::memory_order_relaxed);
      break;
    }
    unsent_at_ += static_cast<size_t>(sent);
  }
  unsent_.clear();
  unsent_at_ = 0;
  has_unsent_.store(false, std::memory_order_relaxed);
}

void Link::Close() {
  Flush();
  shutdown(fd(), SHUT_WR);
  // Closing a socket with unread bytes resets the connection, and sent bytes are dropped.
  char unread[4096];
  while (recv(fd(), unread, sizeof(unread), MSG_DONTWAIT) > 0) {
  }
}

absl::StatusOr<bool> Link::Read(Handler& handler, std::vector<char>& landing) {
  if (!end_.empty()) return false;
  // The rest of a payload goes straight to where it belongs.
  const size_t straight = sink_ != nullptr ? payload_left_ : 0;
  const iovec pieces[] = {{sink_, straight}, {landing.data(), landing.size()}};
  const ssize_t got = straight > 0 ? socket_.stream().Receive(pieces)
                                   : socket_.stream().Receive(landing.data(), landing.size());
  if (got <= 0) {
    if (got < 0 && IsNothing(errno)) return false;
    in_order_ = leaving_ || got == 0;
    end_ = leaving_ ? "it left" : ReasonOfEnd(got, errno);
    return true;
  }
  const size_t placed = std::min(straight, static_cast<size_t>(got));
  if (placed > 0) {
    sink_ += placed;
    COHORT_RETURN_IF_ERROR(Filled(handler, placed));
  }
  COHORT_RETURN_IF_ERROR(Take(handler, landing.data(), static_cast<size_t>(got) - placed));
  return true;
}

absl::Status Link::Filled(Handler& handler, size_t count) {
  payload_left_ -= count;
  return payload_left_ == 0 ? handler.OnFrame(*this, header_) : absl::OkStatus();
}

absl::Status Link::Take(Handler& handler, const char* bytes, size_t count) {
  while (count > 0) {
    if (payload_left_ > 0) {
      const size_t piece = std::min(payload_left_, count);
      if (sink_ != nullptr) {
        memcpy(sink_, bytes, piece);
        sink_ += piece;
      }
      bytes += piece;
      count -= piece;
      COHORT_RETURN_IF_ERROR(Filled(handler, piece));
      continue;
    }
    const size_t piece = std::min(sizeof(header_bytes_) - header_got_, count);
    memcpy(header_bytes_ + header_got_, bytes, piece);
    header_got_ += piece;
    bytes += piece;
    count -= piece;
    if (header_got_ < sizeof(header_bytes_)) break;
    header_got_ = 0;
    memcpy(&header_, header_bytes_, sizeof(header_));
    sink_ = nullptr;
    COHORT_RETURN_IF_ERROR(handler.OnHeader(*this, header_, &sink_));
    payload_left_ = header_.payload_bytes;
    if (payload_left_ == 0) COHORT_RETURN_IF_ERROR(handler.OnFrame(*this, header_));
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
