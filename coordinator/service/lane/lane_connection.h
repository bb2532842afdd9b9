// The server's end of one lane.
#ifndef COHORT_COORDINATOR_SERVICE_LANE_LANE_CONNECTION_H_
#define COHORT_COORDINATOR_SERVICE_LANE_LANE_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/lane/event_loop.h"
#include "base/lane/frame.h"
#include "base/lane/send_queue.h"
#include "base/mutex.h"
#include "base/rpc/incoming_bytes.h"
#include "base/rpc/listener.h"
#include "coordinator/core/account.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/lane/lane_call.h"
#include "coordinator/service/lane/lane_guard.h"
#include "coordinator/service/reply_sink.h"

namespace cohort::coordinator {

// The state that all lanes of a server share.
struct LaneProtocol {
  Dispatcher& dispatcher;
  std::vector<Method> methods;  // by their number on the wire
  std::string hello;            // preface and frame
  size_t max_body_bytes = 0;
  size_t max_calls = 0;  // in flight, per connection; 0: no limit
  LaneLimits limits;
};

// Calls arrive on the loop's thread; any thread may reply. The connection does not read from a
// client that does not read its replies: at most kMaxBacklog bytes, one reply and those of parked
// calls wait here. They are charged to the account; at max_bytes_held the connection is closed. A
// client that exceeds a limit of LaneGuard gets the error in its last reply, and its connection is
// closed.
class LaneConnection final : public lane::EventLoop::Handler,
                             public Corked,
                             public std::enable_shared_from_this<LaneConnection> {
 public:
  // Takes `fd`, which does not block. `protocol` and `loop` outlive it.
  LaneConnection(int fd, const LaneProtocol& protocol, lane::EventLoop& loop, LanePeer peer);
  ~LaneConnection() override;

  void OnEvents(uint32_t events) override;
  // Any thread may call it. With a context, the replies of one delivery are sent together at its
  // end. `from` is the call that ends; null: it never began.
  void Reply(const LaneCall* from, uint32_t id, const absl::Status& status,
             const MessageBytes& message, DeliveryContext* context);
  void Flush() override;

  // Cancels the calls in flight.
  void CloseSoon();
  // Waits until all bytes are written or the client is gone. False: neither within `patience`.
  bool WaitUntilWritten(absl::Duration patience);

 private:
  static constexpr size_t kMaxBacklog = size_t{8} << 20;

  void Close();     // on the loop's thread
  bool ReadSome();  // false: the connection is to be closed
  bool HandleInput();
  // `refusal`: why the body of the frame was not read; OK: it was. Returns false if the connection
  // is to be closed.
  bool HandleFrame(const lane::Frame& frame, const absl::Status& refusal);
  absl::Status TooLarge(const lane::Frame& frame) const;
  // Returns room for `size` more bytes. If an allocation fails, it refuses the frame and returns
  // room for what follows the frame. Null: the connection is to be closed.
  char* RoomFor(size_t size);
  // Charges the memory of `input_`. Over the limit, it refuses the frame at the front. Returns
  // false if the connection is to be closed.
  bool ChargeInput();
  // Drops the frame at the front, and refuses its call with why(operation, size). Returns false if
  // no frame is at the front, or the connection is to be closed.
  bool GiveUpFrame(const std::function<absl::Status(absl::string_view, int64_t)>& why);
  bool StartCall(const lane::Frame& frame);
  bool CancelCall(uint32_t id);
  // These three return false if the client has gone over a limit.
  bool Refuse(uint32_t id, const absl::Status& status);
  bool CheckIdleFrame(uint32_t id);
  bool Check(uint32_t id, const absl::Status& status);
  bool Backlogged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return output_.size() >= kMaxBacklog;
  }
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Charges the bytes that the socket does not take. False: there is no room for them.
  bool ChargeUnread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  const LaneProtocol& protocol_;
  lane::EventLoop& loop_;
  // Only the loop's thread uses these.
  lane::FrameReader input_;
  IncomingCharge incoming_;  // for the memory of `input_`
  bool greeted_ = false;
  bool paused_ = false;  // with requests left in `input_`, for the backlog or for others' turn
  int frames_left_ = 0;  // of this turn
  LaneGuard guard_;
  const LanePeer peer_;

  Mutex mutex_;
  lane::SendQueue output_ ABSL_GUARDED_BY(mutex_);
  SharedCharge unread_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, std::shared_ptr<LaneCall>> calls_ ABSL_GUARDED_BY(mutex_);
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // the loop flushes when it is done
  bool corked_ ABSL_GUARDED_BY(mutex_) = false;    // a delivery will flush
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;   // the socket takes no more now
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t events_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_LANE_LANE_CONNECTION_H_
