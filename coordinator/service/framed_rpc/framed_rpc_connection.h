// The server's end of one framed RPC connection.
#ifndef COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_CONNECTION_H_
#define COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_CONNECTION_H_

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
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/send_queue.h"
#include "base/rpc/listener/incomplete_request_bytes.h"
#include "base/rpc/listener/listener.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/reply_sink.h"
#include "coordinator/service/framed_rpc/call_rate_guard.h"
#include "coordinator/service/framed_rpc/framed_rpc_call.h"

namespace cohort::coordinator {

// The state that all framed RPC connections of a server share.
struct FramedRpcProtocol {
  Dispatcher& dispatcher;
  std::vector<Method> methods;  // by their number on the wire
  std::string hello;            // preface and frame
  size_t max_body_bytes = 0;
  size_t max_calls = 0;  // in flight, per connection; 0: no limit
  CallRateLimits limits;
};

// Calls arrive on the loop's thread; any thread may reply. The connection does not read from a
// client that does not read its replies: at most kMaxBacklog bytes, one reply and those of parked
// calls wait here. They are charged to the account; at max_bytes_held the connection is closed. A
// client that exceeds a limit of CallRateGuard gets the error in its last reply, and its connection
// is closed.
class FramedRpcConnection final : public EventLoop::Handler,
                                  public Corked,
                                  public std::enable_shared_from_this<FramedRpcConnection> {
 public:
  // Takes `fd`, which does not block. `protocol` and `loop` outlive it.
  FramedRpcConnection(int fd, const FramedRpcProtocol& protocol, EventLoop& loop,
                      FramedRpcPeer peer);
  ~FramedRpcConnection() override;

  void OnEvents(uint32_t events) override;
  // Any thread may call it. With a context, the replies of one delivery are sent together at its
  // end. `from` is the call that ends; null: it never began.
  void Reply(const FramedRpcCall* from, uint32_t id, const absl::Status& status,
             const MessageBytes& message, DeliveryContext* context);
  void Flush() override;

  // Cancels the calls in flight.
  void CloseSoon();
  // Waits until all bytes are written or the client is gone. False: neither within `timeout`.
  bool WaitUntilWritten(absl::Duration timeout);

 private:
  static constexpr size_t kMaxBacklog = size_t{8} << 20;

  void Close();     // on the loop's thread
  bool ReadSome();  // false: the connection is to be closed
  bool HandleInput();
  // `error`: why the body of the frame was not read; OK: it was. Returns false if the connection
  // is to be closed.
  bool HandleFrame(const framed_rpc::Frame& frame, const absl::Status& error);
  absl::Status TooLarge(const framed_rpc::Frame& frame) const;
  // Returns room for `size` more bytes. If an allocation fails, it refuses the frame and returns
  // room for the bytes after the frame. Null: the connection is to be closed.
  char* RoomFor(size_t size);
  // Charges the memory of `input_`. Over the limit, it refuses the frame at the front. Returns
  // false if the connection is to be closed.
  bool ChargeInput();
  // Drops the frame at the front, and refuses its call with why(operation, size). Returns false if
  // no frame is at the front, or the connection is to be closed.
  bool GiveUpFrame(const std::function<absl::Status(absl::string_view, int64_t)>& why);
  bool StartCall(const framed_rpc::Frame& frame);
  bool CancelCall(uint32_t id);
  // These three return false if the client has gone over a limit.
  bool Reject(uint32_t id, const absl::Status& status);
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
  const FramedRpcProtocol& protocol_;
  EventLoop& loop_;
  // Only the loop's thread uses these.
  framed_rpc::FrameReader input_;
  IncomingCharge incoming_;  // for the memory of `input_`
  bool greeted_ = false;
  bool paused_ = false;  // with requests left in `input_`, for the backlog or for other connections
  int frames_left_ = 0;  // of this iteration
  CallRateGuard guard_;
  const FramedRpcPeer peer_;

  Mutex mutex_;
  framed_rpc::SendQueue output_ ABSL_GUARDED_BY(mutex_);
  SharedCharge unread_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, std::shared_ptr<FramedRpcCall>> calls_ ABSL_GUARDED_BY(mutex_);
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // the loop flushes when it is done
  bool corked_ ABSL_GUARDED_BY(mutex_) = false;    // a delivery will flush
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;   // the socket takes no more now
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t events_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_FRAMED_RPC_FRAMED_RPC_CONNECTION_H_
