// Reads the requests of one client, within the limits of memory. Both kinds of server use it.
//
//   char* room = reader.Room(&size, refuse);   // null: close the connection
//   reader.Filled(recv(fd, room, size, 0));
//   while (reader.Read(&frame, &error) == RequestReader::Next::kFrame) ...
//   bool open = reader.Charge(has_role, refuse);
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_REQUEST_READER_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_REQUEST_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/server_protocol.h"
#include "base/port/limits/incomplete_request_bytes.h"

namespace cohort::framed_rpc {

// Thread-compatible.
class RequestReader {
 public:
  enum class Next {
    kPreface,  // once, before all frames: the client waits for the greeting
    kFrame,
    kMore,    // needs more bytes
    kBroken,  // not a client of this protocol
  };
  // Answers a frame whose body is not read, for the reason `error`. Returns false if the connection
  // is to be closed.
  using Refuse = absl::FunctionRef<bool(const Frame& frame, const absl::Status& error)>;

  // `protocol` outlives it. `incoming` bounds the incomplete requests of all connections together;
  // null: they have no limit.
  RequestReader(const ServerProtocol& protocol, std::shared_ptr<IncompleteRequestBytes> incoming);

  // Returns memory for the client's next bytes, and its size. It grows with the bytes that have
  // arrived: a client that declares a large frame does not get memory for it in advance. If an
  // allocation fails, it refuses the frame at the front. Null: the connection is to be closed.
  char* Room(size_t* size, Refuse refuse);
  void Filled(size_t bytes) { input_.Filled(bytes); }
  // The next frame. `*error` is OK, or the reason why its body was not read.
  Next Read(Frame* frame, absl::Status* error);
  // Charges the memory of incomplete requests to `incoming` from now on.
  void ChargeTo(const std::shared_ptr<IncompleteRequestBytes>& incoming) {
    charge_.MoveTo(incoming);
  }
  // Charges the memory of incomplete requests. Over the limit, or if a client without a role sends
  // more than a first piece, it refuses the frame at the front. Returns false if the connection is
  // to be closed.
  bool Charge(bool has_role, Refuse refuse);

  // Frees the memory of a large request that has been answered. A connection that waits for its
  // next request keeps 64 KiB. Frames that were read become invalid.
  void Shrink();

  // A connection without an incomplete request needs no memory of its own (FrameReader::Borrow).
  void Borrow(std::string* spare) { input_.Borrow(spare); }
  void GiveBack(std::string* spare) {
    input_.GiveBack(spare);
    charge_.Set(static_cast<int64_t>(input_.memory()));
  }

 private:
  // Drops the frame at the front. Returns false if no frame is there.
  bool GiveUpFrame(Frame* frame);

  const ServerProtocol& protocol_;
  FrameReader input_;
  IncomingCharge charge_;  // for the memory of `input_`
  bool greeted_ = false;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_REQUEST_READER_H_
