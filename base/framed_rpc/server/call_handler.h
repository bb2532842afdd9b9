// The calls of a framed RPC server, as the program that has the server implements them.
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_CALL_HANDLER_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_CALL_HANDLER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/framed_rpc/reply_batch.h"
#include "base/framed_rpc/send_queue.h"

namespace cohort {

class PeerAccess;

namespace framed_rpc {

class ServerConnection;

// A request that has arrived, valid until CallHandler::Start returns.
struct Request {
  ServerConnection& connection;
  uint32_t call = 0;    // its number, which the client chose
  uint16_t method = 0;  // a valid number
  absl::string_view message;
  absl::Duration time_left = absl::InfiniteDuration();  // to the caller's deadline
};

// One call in flight. It finishes once, with SendReply or Cancel, and keeps its connection alive.
class ServerCall {
 public:
  ServerCall(const Request& request, Instant started);
  virtual ~ServerCall() = default;

  uint32_t id() const { return id_; }
  Instant started() const { return started_; }
  // The client has cancelled the call, or is gone. Returns true if that ends the call, and false if
  // its reply is sent. Runs on the thread of the connection, after Start has returned.
  virtual bool Cancel() = 0;
  // The client asks for the next part. Returns false if it has no right to: the part before has not
  // been sent. On the thread of the connection.
  virtual bool Next() { return false; }
  // Whether the client should have asked for the next part by now. On the thread of the connection,
  // for ServerConnection::CheckEvery.
  virtual bool Overdue() { return false; }

 protected:
  // Sends the reply: the concatenated pieces of `message`, or the error. With a batch, all replies
  // of the batch to one client are sent together at its end. Thread-safe.
  void SendReply(const absl::Status& status, absl::Span<const SharedBytes> message,
                 ReplyBatch* batch);
  // The same for a part of the answer; the call goes on.
  void SendPart(absl::Span<const SharedBytes> message, ReplyBatch* batch);
  ServerConnection& connection() { return *connection_; }

 private:
  const std::shared_ptr<ServerConnection> connection_;
  const uint32_t id_;
  const Instant started_;
};

// The charge for the replies that one client has not read. The destructor gives the bytes back.
// Thread-compatible.
class UnreadCharge {
 public:
  virtual ~UnreadCharge() = default;
  // The bytes change. An error closes the client's connection; the charge is then as it was. Must
  // not block.
  virtual absl::Status Set(int64_t bytes) = 0;
};

// Thread-safe.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  // Starts a call: makes a ServerCall, passes it to request.connection.Add, and replies at any time
  // from then on. An error refuses a call that was not added. Must not block, because its thread
  // serves other callers, too.
  virtual absl::Status Start(const Request& request) = 0;
  // For one client, at the begin of its connection and when it shows a token. `access` is null if
  // each client has all rights. Must not block.
  virtual std::unique_ptr<UnreadCharge> ChargeUnread(PeerAccess* access) = 0;
};

}  // namespace framed_rpc
}  // namespace cohort

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_CALL_HANDLER_H_
