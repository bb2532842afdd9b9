// The messages between this rank and another on one channel, over a link and the streams beside it.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_SOCKET_MAILBOX_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_SOCKET_MAILBOX_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/socket/transfer/link.h"
#include "worker/communicator/socket/transfer/link_frame.h"
#include "worker/communicator/socket/transfer/traffic.h"

namespace cohort::worker {

// One transfer of an exchange.
struct Posted {
  Transfer transfer;
  bool completed = false;  // or its data is on the way
  absl::Status status;
};

// A small message is sent immediately, and the receiver keeps it until it is received. A large one
// is offered, and sent once it is accepted. A sender has at most `window` bytes of messages and
// offers that the receiver has not taken. Confined to one thread at a time.
class Mailbox {
 public:
  Mailbox(Link* link, Traffic* traffic, int64_t window)
      : Mailbox(link, traffic, window, FrameKind::kMessage, FrameKind::kCredit) {}
  // A mailbox of control messages, which are all small.
  static Mailbox ForControl(Link* link, Traffic* traffic) {
    constexpr int64_t kWindow = int64_t{4} << 10;
    static_assert(kControlBytes <= kWindow / 4);
    return Mailbox(link, traffic, kWindow, FrameKind::kControl, FrameKind::kControlCredit);
  }

  // `open` counts the transfers and flows that are not done. `posted` and `open` live until Drop or
  // until the transfers are done.
  void Post(Posted* posted, int* open);
  void Drop();
  // Completes the posted transfers that wait for the other rank, which has left, with `cause`.
  void FailWaiting(const absl::Status& cause);
  // Whether a transfer waits for a frame of the other rank.
  bool waits() const { return !sends_.empty() || !offers_.empty() || !receives_.empty(); }

  bool has_arrival() const { return !arrivals_.empty(); }
  // The message that the next receive gets. Precondition: has_arrival().
  MessageInfo next_arrival() const {
    const CollectiveKey& key = arrivals_.front().key;
    return {link_.rank(), static_cast<DataType>(key.type()), key.count};
  }

  // Handle frames of the kinds kMessage to kCredit, or of control messages, like Link::Handler.
  absl::Status OnHeader(const FrameHeader& header, char** sink);
  absl::Status OnFrame(const FrameHeader& header);

  // The largest size of a small message.
  int64_t small_bytes() const { return window_ / 4; }

 private:
  Mailbox(Link* link, Traffic* traffic, int64_t window, FrameKind message, FrameKind credit)
      : link_(*link),
        traffic_(*traffic),
        window_(window),
        message_(message),
        credit_kind_(credit),
        credit_(window) {}

  // A message or offer that has arrived and was not received yet.
  struct Arrival {
    CollectiveKey key;
    bool offered = false;
    bool complete = false;
    std::string payload;
  };

  void SendMore();
  void Match();
  void Deliver(Posted& receive, const Arrival& arrival);
  void Complete(Posted& posted, absl::Status status);
  void StartFlows(const Transfer& transfer);
  void GiveCredit(int64_t bytes);
  absl::Status OnArrived(const FrameHeader& header);
  absl::Status OnCredit(const FrameHeader& header);
  absl::Status CheckMessage(const FrameHeader& header);

  Link& link_;
  Traffic& traffic_;
  const int64_t window_;
  const FrameKind message_;
  const FrameKind credit_kind_;
  int* open_ = nullptr;

  int64_t credit_;
  std::deque<Posted*> sends_;   // not begun
  std::deque<Posted*> offers_;  // not answered

  int64_t taken_ = 0;   // bytes, not told yet
  int64_t on_way_ = 0;  // that the other may think are on the way
  std::deque<Posted*> receives_;
  std::deque<Arrival> arrivals_;
  Posted* direct_ = nullptr;  // the payload being received goes to its memory
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_SOCKET_MAILBOX_H_
