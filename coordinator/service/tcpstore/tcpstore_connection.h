// The connection of one TCPStore client.
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_CONNECTION_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/framed_rpc/reply_batch.h"
#include "base/framed_rpc/send_queue.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/peer/listener_peer.h"
#include "base/threads/event_loop.h"
#include "base/threads/fair_turns.h"
#include "base/threads/mutex.h"
#include "base/tls/stream_socket.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/unread_answers.h"
#include "coordinator/service/engine/reply_sink.h"
#include "coordinator/service/tcpstore/tcpstore_calls.h"
#include "coordinator/service/tcpstore/tcpstore_jobs.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"

namespace cohort::coordinator::tcpstore {

// Requests arrive on the loop's thread; any thread may bring their replies. An answer leaves when
// it is there, also while an earlier wait goes on: PyTorch 1.13 gives up a wait without a word.
// TCPStore has no errors on the wire: a request that fails closes the connection, and the log has
// the reason. The connection does not read from a client that does not read its answers, or that
// has kMaxCalls requests without an answer, or one whose answer may be large.
class Connection final : public EventLoop::Handler,
                         public FairTurns::Work,
                         public framed_rpc::ReplyBatch::Output,
                         public std::enable_shared_from_this<Connection> {
 public:
  // Takes `fd`, which does not block. The others outlive its use of them. `port` is the
  // coordinator's.
  Connection(int fd, int port, EventLoop& loop, FairTurns& turns, Dispatcher& dispatcher,
             Jobs& jobs, ListenerPeer peer);
  ~Connection() override;

  void OnEvents(uint32_t events) override;
  void OnTurn() override;
  void Flush() override;

  // Closes it on the loop's thread.
  void CloseSoon();
  // Waits until all bytes are written or the client is gone. False: neither within `timeout`.
  bool WaitUntilWritten(absl::Duration timeout);

 private:
  // A request that has no answer yet.
  struct PendingAnswer final : public ReplySink {
    void OnReply(Reply&& reply, DeliveryContext& context) override;
    absl::Status CheckRights() override;

    Connection* connection = nullptr;
    std::list<PendingAnswer>::iterator place;  // its own, in answers_
    Instant started;
    Asked asked;
    CallHandle handle;
    Jobs::BarrierPlace barrier;
    std::shared_ptr<Connection> self;  // while the engine has the call
    bool cancelled = false;            // the answer to cancel_wait follows
  };
  using Answers = std::list<PendingAnswer>;
  static constexpr size_t kMaxBacklog = size_t{8} << 20;
  static constexpr size_t kMaxCalls = 1024;

  // Reads, or goes on with bytes that it has read, in the turn of its port.
  void AwaitTurn();
  // These return false if the connection is to be closed.
  bool ReadSome();
  bool HandleInput(absl::string_view* input);
  bool HandleRequest(const Request& request);
  // Sets the tenant, and checks the client's rights in it. The request counts for the rate of the
  // tenant (TenantRates), but this connection is not read more slowly.
  bool Admit(Method method, Caller* caller);
  // The same without the count.
  bool HasRights(Method method, Caller* caller);
  // Whether the client may send the rest of the request that it has begun.
  bool MaySendMore();

  bool StartBarrier(const Request& request);
  void CancelWait();
  PendingAnswer& AddAnswer(Operation operation);
  void EndAnswer(PendingAnswer& answer, absl::StatusCode code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the reply of a request: sends the answer and forgets the request.
  void OnAnswer(PendingAnswer& answer, const absl::Status& status, const AnswerBytes& bytes,
                framed_rpc::ReplyBatch* batch);
  // Ends the calls that have no reply yet.
  void CancelCalls();
  // Ends one of them. False: its reply is on its way.
  bool CancelCall(const CallHandle& handle);
  void Close();  // on the loop's thread
  // The client sent bytes that no honest client sends, or its request failed.
  void Complain(const absl::Status& status);

  void AppendLocked(const AnswerBytes& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends what the output has, unless the loop or `batch` does so soon.
  void SendLocked(framed_rpc::ReplyBatch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ChargeUnread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Backlogged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return output_.size() >= kMaxBacklog || answers_.size() >= kMaxCalls || large_answers_ > 0;
  }

  const int fd_;
  const StreamSocket socket_;
  const int port_;
  EventLoop& loop_;
  FairTurns& turns_;
  Dispatcher& dispatcher_;
  Jobs& jobs_;
  const ListenerPeer peer_;
  const std::string client_;  // its address and port
  // Only the loop's thread uses these.
  std::optional<Dialect> dialect_;
  std::string input_;  // the beginning of a request
  RequestReader reader_;
  bool begun_ = false;  // its client may send the rest of it
  Jobs::Client job_client_;
  IncomingCharge charge_;
  Request request_;
  std::shared_ptr<FairTurns::Client> turns_client_;  // null: not known yet
  bool awaits_turn_ = false;
  int requests_left_ = 0;  // of this turn
  Instant turn_end_;

  Mutex mutex_;
  Answers answers_ ABSL_GUARDED_BY(mutex_);
  Answers spare_answers_ ABSL_GUARDED_BY(mutex_);     // at most one, to be used again
  size_t large_answers_ ABSL_GUARDED_BY(mutex_) = 0;  // of those that are not there yet
  size_t waits_ ABSL_GUARDED_BY(mutex_) = 0;
  // In which the client stays counted although its wait was refused.
  std::vector<Jobs::BarrierPlace> lost_barriers_ ABSL_GUARDED_BY(mutex_);
  framed_rpc::SendQueue output_ ABSL_GUARDED_BY(mutex_);
  int64_t unread_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  UnreadAnswers unread_charge_ ABSL_GUARDED_BY(mutex_);
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // the loop flushes when it is done
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;    // it does not read: see Backlogged
  bool corked_ ABSL_GUARDED_BY(mutex_) = false;    // a batch will flush
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;   // the socket takes no more now
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_CONNECTION_H_
