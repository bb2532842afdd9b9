// The client's end of one framed RPC connection (base/framed_rpc/frame.h): a socket, the calls in
// flight on it, and the thread that reads from it.
#ifndef COHORT_BASE_FRAMED_RPC_CLIENT_CLIENT_CONNECTION_H_
#define COHORT_BASE_FRAMED_RPC_CLIENT_CLIENT_CONNECTION_H_

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/send_queue.h"
#include "base/rpc/token_file.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "base/tls/stream_socket.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"
#include "grpcpp/support/status.h"

namespace cohort::framed_rpc {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

struct ChannelOptions {
  absl::Duration connect_timeout = absl::Seconds(2);
  absl::Duration keepalive = absl::Seconds(30);
  size_t max_message_bytes = size_t{8} << 20;
  std::shared_ptr<TlsContext> tls;   // null: the connection is plain
  std::shared_ptr<TokenFile> token;  // sent over TLS alone; null: none is sent
  std::string host;                  // for which the server's certificate must be valid
  std::string client_names;          // the body of the frame kClient; empty: none is sent
};

// Thread-safe. A caller that blocks reads from the socket itself, so no thread has to wake it with
// its answer. If several callers block, one reads for all. The loop reads when no caller does.
class ClientConnection final : public EventLoop::Handler,
                               public std::enable_shared_from_this<ClientConnection> {
 public:
  // Waits for one answer.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // Once, with no lock held. `body` is valid in here alone; empty with an error that the server
    // has not sent. On a thread that reads for others: nothing of the user's may run in here.
    virtual void OnReply(const grpc::Status& status, absl::string_view body) = 0;
    // A part of the answer to a call of StartStream, under the same conditions; OnReply ends it.
    virtual void OnPart(uint32_t /*id*/, absl::string_view /*body*/) {}
  };
  // A call that blocks its thread; lives on that thread's stack. `waiter` is borrowed.
  class BlockingCall {
   public:
    explicit BlockingCall(Waiter& waiter) : waiter_(waiter) {}
    // For Cancel, once it has begun.
    uint32_t id() const { return id_; }

   private:
    friend class ClientConnection;
    Waiter& waiter_;
    uint32_t id_ = 0;
    Instant deadline_;
    bool answered_ = false;
    CondVar changed_;
  };
  enum class End {
    kNotOurs,  // the process that listens there does not speak this protocol
    kBroken,   // no process listens, or the connection broke
    kTls,      // the handshake failed
  };
  using OnEnd = std::function<void(End, const std::string& why)>;
  using Numbers = absl::flat_hash_map<std::string, uint16_t>;

  // Tries the addresses in order. `on_ready` runs once greeted, `on_end` once at the end, both on
  // the loop's thread.
  static std::shared_ptr<ClientConnection> Connect(std::vector<SocketAddress> addresses,
                                                   const ChannelOptions& options,
                                                   std::function<void()> on_ready, OnEnd on_end);
  ~ClientConnection() override;

  // The method's number on this connection, once it is ready; -1: the server has no such method.
  int Number(absl::string_view path) const;

  // `frame` has room for a header in front of the request. False, and `waiter` is not called,
  // when the connection is not ready.
  bool Start(uint16_t method, std::string frame, absl::Duration timeout,
             std::shared_ptr<Waiter> waiter, uint32_t* id);
  // Starts a call whose answer comes in parts, without a limit of time. After OnPart, Next asks for
  // the next part.
  bool StartStream(uint16_t method, std::string frame, std::shared_ptr<Waiter> waiter,
                   uint32_t* id);
  void Next(uint32_t id);
  // Asks for an early end: the waiter gets CANCELLED, unless its answer is on its way.
  void Cancel(uint32_t id);
  // The same for a call of Start, whose waiter gets the server's reply: CANCELLED, or an answer
  // that was on its way and that Cancel would drop. DEADLINE_EXCEEDED: no reply came within
  // `patience`.
  void AskToCancel(uint32_t id, absl::Duration patience);
  // Blocks this thread: Begin sends the call, and returns false as Start does; then Await returns
  // once the waiter has been called.
  bool Begin(uint16_t method, std::string frame, absl::Duration timeout, BlockingCall& call);
  void Await(BlockingCall& call);
  // Begin and Await.
  bool Call(uint16_t method, std::string frame, absl::Duration timeout, Waiter& waiter);

  void Close();
  // Closes the connection if the files of its TLS context have changed since the handshake, so that
  // the next one shows the new certificate. Calls in flight keep it open; streams do, too, because
  // a server may take the end of a stream for the end of a process. True: it is closed, and takes
  // no calls.
  bool CloseIfFilesChanged(Instant now);
  // Ends calls of Start whose time has passed; whether there are others. On the loop's thread.
  bool Expire(Instant now);
  bool ended();

  void OnEvents(uint32_t events) override;

 private:
  enum class State { kConnecting, kHandshake, kGreeting, kReady, kEnded };
  struct Pending {
    std::shared_ptr<Waiter> waiter;   // of Start
    BlockingCall* blocked = nullptr;  // of Begin
    bool streams = false;             // of StartStream
    Instant deadline;
  };

  ClientConnection(std::vector<SocketAddress> addresses, const ChannelOptions& options,
                   std::function<void()> on_ready, OnEnd on_end);

  void ConnectNext();
  void OnConnected();
  void OnHandshake();
  void FailHandshake();
  void SendPreface();
  // Sends the token to a server that does not have it.
  void SendNewToken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteFrame(Kind kind, absl::string_view body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReadGreeting();

  uint32_t Add(uint16_t method, Pending pending, absl::Duration timeout, std::string& frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A frame without a body.
  void SendFrame(Kind kind, uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the call out of those in flight.
  Pending Remove(absl::flat_hash_map<uint32_t, Pending>::iterator it)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateEvents(bool want_input) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Takes the reading, and lets go of the lock meanwhile.
  void ReadForAll(absl::Duration longest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // While `reading_` is this thread's.
  bool AwaitInput(absl::Duration longest);
  bool ReadOnce();
  bool HandleInput();
  void HandlePart(const Frame& frame);
  // A part that is too large ends its call, too.
  void HandleReply(const Frame& frame, bool too_large);
  void PassOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the loop read, once no blocking call has for a while.
  void ListenSoon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(Pending pending, const grpc::Status& status, absl::string_view body);
  void Finish(End end, const std::string& why);
  StreamSocket stream() const { return {fd_, tls_}; }

  const std::vector<SocketAddress> addresses_;
  const ChannelOptions options_;
  const Instant connect_until_;
  // On the loop's thread alone.
  std::function<void()> on_ready_;
  OnEnd on_end_;
  size_t next_address_ = 0;

  // Wakes the caller that reads, for Cancel. Without it, the server's answer to the cancellation
  // does.
  const int wake_fd_;
  // Only for the thread that reads.
  FrameReader input_;
  Instant last_answer_ = absl::InfinitePast();
  absl::Duration last_wait_;
  bool in_a_row_ = false;  // the last call began shortly after the one before
  // Written before the connection is ready.
  std::shared_ptr<const Numbers> numbers_;

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kConnecting;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;  // by CloseIfFilesChanged
  int fd_ =
      -1;  // changes on the loop's thread and before the connection is ready; then stays to the end
  std::shared_ptr<TlsSession> tls_;  // as fd_
  SendQueue output_ ABSL_GUARDED_BY(mutex_);
  int64_t token_version_ ABSL_GUARDED_BY(mutex_) = 0;  // of the token that the server has
  absl::flat_hash_map<uint32_t, Pending> calls_ ABSL_GUARDED_BY(mutex_);
  uint32_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Start in flight
  int64_t streams_ ABSL_GUARDED_BY(mutex_) = 0;  // of StartStream
  bool listens_soon_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<BlockingCall*> queue_ ABSL_GUARDED_BY(mutex_);  // the callers that read next
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;             // the socket takes no more now
  bool want_input_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t events_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_CLIENT_CLIENT_CONNECTION_H_
