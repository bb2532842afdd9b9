// The server's end of one framed RPC connection.
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_SERVER_CONNECTION_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_SERVER_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/reply_batch.h"
#include "base/framed_rpc/send_queue.h"
#include "base/framed_rpc/server/call_handler.h"
#include "base/framed_rpc/server/call_rate_guard.h"
#include "base/framed_rpc/server/request_reader.h"
#include "base/framed_rpc/server/server_protocol.h"
#include "base/port/peer/listener_peer.h"
#include "base/threads/event_loop.h"
#include "base/threads/fair_turns.h"
#include "base/threads/mutex.h"
#include "base/tls/stream_socket.h"

namespace cohort::framed_rpc {

// The state that all connections of a server share.
struct ConnectionContext {
  ServerProtocol protocol;
  std::shared_ptr<CallHandler> handler;
  size_t max_calls = 0;  // in flight, per connection; 0: no limit
  CallRateLimits limits;
};

// Calls arrive on the loop's thread; any thread may reply. The connection does not read from a
// client that does not read its replies: at most kMaxBacklog bytes, one reply and those of parked
// calls wait here. CallHandler::ChargeUnread counts them, and may close the connection. A client
// that exceeds a limit of CallRateGuard gets the error in its last reply, and its connection is
// closed.
class ServerConnection final : public EventLoop::Handler,
                               public FairTurns::Work,
                               public ReplyBatch::Output,
                               public std::enable_shared_from_this<ServerConnection> {
 public:
  // Takes `fd`, which does not block. `loop` and `turns` outlive its use of them.
  ServerConnection(int fd, std::shared_ptr<const ConnectionContext> context, EventLoop& loop,
                   FairTurns& turns, ListenerPeer peer);
  ~ServerConnection() override;

  void OnEvents(uint32_t events) override;
  void OnTurn() override;
  // Adds a call, on the loop's thread, within CallHandler::Start. Errors: UNAVAILABLE (too many
  // calls are in flight), INVALID_ARGUMENT (another call with this number is in flight).
  absl::Status Add(std::shared_ptr<ServerCall> call);
  // See ServerCall::SendReply. `from` is the call that ends; null: it never began.
  void SendReply(const ServerCall* from, uint32_t id, const absl::Status& status,
                 absl::Span<const SharedBytes> message, ReplyBatch* batch);
  // See ServerCall::SendPart.
  void SendPart(uint32_t id, absl::Span<const SharedBytes> message, ReplyBatch* batch);
  // Runs `task` on the loop's thread, soon. False: the connection is closed.
  bool Run(std::function<void()> task);
  // From now on, while there are calls: closes the connection if one of them is overdue, and no
  // byte has come for a period.
  void CheckEvery(absl::Duration period);
  void Flush() override;

  // On the loop's thread: the client's token changes its rights. The connection reads nothing while
  // the client's PeerAccess asks for a pause.
  const ListenerPeer& peer() const { return peer_; }

  // Cancels the calls in flight.
  void CloseSoon();
  // Waits until all bytes are written or the client is gone. False: neither within `timeout`.
  bool WaitUntilWritten(absl::Duration timeout);

 private:
  static constexpr size_t kMaxBacklog = size_t{8} << 20;

  void Close();     // on the loop's thread
  // Reads, or goes on with bytes that it has read, in the turn of the client's tenant or address.
  void AwaitTurn();
  bool ReadSome();  // false: the connection is to be closed
  bool HandleInput();
  // Whether reading waits for the rate of the client's tenant (PeerAccess::Pause). If so, a task of
  // the loop reads on after the pause.
  bool WaitsForRate();
  // `error`: why the body of the frame was not read; OK: it was. Returns false if the connection
  // is to be closed.
  bool HandleFrame(const Frame& frame, const absl::Status& error);
  bool StartCall(const Frame& frame);
  bool CancelCall(uint32_t id);
  bool SendNextPart(uint32_t id);
  void CheckCalls(absl::Duration period);
  bool TakeToken(absl::string_view token);
  bool TakeClient(absl::string_view names);
  // These three return false if the client has gone over a limit.
  bool Reject(uint32_t id, const absl::Status& status);
  bool CheckIdleFrame(uint32_t id);
  bool Check(uint32_t id, const absl::Status& status);
  bool Backlogged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return output_.size() >= kMaxBacklog;
  }
  void SendLocked(const Header& header, absl::string_view error,
                  absl::Span<const SharedBytes> message, ReplyBatch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Charges the bytes that the socket does not take. False: there is no room for them.
  bool ChargeUnread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  const StreamSocket socket_;
  const std::shared_ptr<const ConnectionContext> context_;
  EventLoop& loop_;
  // Only the loop's thread uses these.
  FairTurns& turns_;
  std::shared_ptr<FairTurns::Client> turns_client_;  // null: not known yet
  bool awaits_turn_ = false;
  bool readable_ = false;
  Instant turn_end_;
  RequestReader input_;
  bool paused_ = false;  // with requests left in `input_`, for the backlog or for other connections
  int frames_left_ = 0;  // of this turn; negative after a large one
  CallRateGuard guard_;
  ListenerPeer peer_;
  bool has_token_ = false;
  bool has_client_ = false;
  bool has_received_ = false;  // bytes have come since the last check

  Mutex mutex_;
  SendQueue output_ ABSL_GUARDED_BY(mutex_);
  int64_t unread_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<UnreadCharge> unread_charge_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, std::shared_ptr<ServerCall>> calls_ ABSL_GUARDED_BY(mutex_);
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;       // the loop flushes when it is done
  bool corked_ ABSL_GUARDED_BY(mutex_) = false;         // a batch will flush
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;        // the socket takes no more now
  bool resume_posted_ ABSL_GUARDED_BY(mutex_) = false;  // reading waits for that task
  bool has_check_ ABSL_GUARDED_BY(mutex_) = false;      // CheckCalls will run
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t events_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_SERVER_CONNECTION_H_
