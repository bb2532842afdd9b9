// The first stream between two ranks: frames out, frames in.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_LINK_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_LINK_H_

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
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "worker/communicator/socket/frame.h"

namespace cohort::worker {

// Why a socket gives or takes no more, after what a call returned: "connection closed by it", ...
std::string ReasonOfEnd(ssize_t result, int error);

// Sending is thread-safe; receiving is confined to one thread at a time.
class Link {
 public:
  // Of the frames that come in. An error says what is wrong with what the peer sent.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Where the payload goes, if there is one; null drops it.
    virtual absl::Status OnHeader(Link& link, const FrameHeader& header, char** sink) = 0;
    virtual absl::Status OnFrame(Link& link, const FrameHeader& header) = 0;
  };

  Link(int rank, UniqueFd fd) : rank_(rank), fd_(std::move(fd)) {}

  int rank() const { return rank_; }
  int fd() const { return fd_.get(); }

  // What the socket does not take at once is copied, and waits for Flush.
  void Send(const FrameHeader& header, absl::string_view payload = {});
  // The same; whatever is sent later is dropped.
  void SendLast(const FrameHeader& header, absl::string_view payload = {});
  void Flush();
  bool has_unsent() const { return has_unsent_.load(std::memory_order_relaxed); }
  // Whether what was sent last may be lost: the other end takes no more.
  bool is_broken() const { return is_broken_.load(std::memory_order_relaxed); }
  // After SendLast, before the link goes: nothing that was sent is lost because of what was not
  // read.
  void Close();

  // Reads what is there, by way of `landing`; whether there was anything.
  absl::StatusOr<bool> Read(Handler& handler, std::vector<char>& landing);
  // Why nothing comes any more; empty as long as something may.
  const std::string& end() const { return end_; }
  // Whether it ended on purpose, or with all there was to say: what was sent on other streams
  // before has come too, or will.
  bool ended_in_order() const { return in_order_; }
  void set_leaving() { leaving_ = true; }

 private:
  void SendLocked(const FrameHeader& header, absl::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Take(Handler& handler, const char* bytes, size_t count);
  absl::Status Filled(Handler& handler, size_t count);

  const int rank_;
  const UniqueFd fd_;

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

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_LINK_H_
