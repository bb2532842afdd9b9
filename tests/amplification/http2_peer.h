// A gRPC client that writes HTTP/2 frames by hand and keeps to flow control, so that it can send a
// part of a message, or a message that is marked as compressed.
//
//   Http2Peer peer(port, "");
//   const uint32_t stream = peer.Open("/grpc.health.v1.Health/Check");
//   peer.Write(stream, GrpcMessage(request), /*last=*/true);
//   peer.AwaitEnd(stream);
#ifndef COHORT_TESTS_AMPLIFICATION_HTTP2_PEER_H_
#define COHORT_TESTS_AMPLIFICATION_HTTP2_PEER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/port/limits/http2_guard.h"
#include "tests/amplification/peer_socket.h"

namespace cohort::amplification {

// The prefix of gRPC, and `message`.
std::string GrpcMessage(absl::string_view message, bool compressed = false);

// Thread-compatible. It cannot be moved.
class Http2Peer {
 public:
  // Each call has `token` as its bearer token; empty: none.
  Http2Peer(int port, const std::string& token);

  // Opens a call of "/package.Service/Method". Returns its stream.
  uint32_t Open(absl::string_view method, bool compressed = false);
  // Writes bytes of the request as far as the server's windows allow. False: the server has ended
  // the call or the connection, or opens no window for `timeout`.
  bool Write(uint32_t stream, absl::string_view bytes, bool last,
             absl::Duration timeout = absl::Seconds(2));
  // False: the server has closed the connection, or `timeout` has passed.
  bool AwaitEnd(uint32_t stream, absl::Duration timeout = absl::Seconds(2));
  // Waits for a message of the server, and returns it with its prefix; "": none came.
  std::string AwaitMessage(uint32_t stream, absl::Duration timeout = absl::Seconds(20));

  int64_t sent_bytes() const { return socket_.sent_bytes(); }
  bool closed() const { return socket_.closed(); }

 private:
  struct Stream {
    int64_t window = 0;
    bool ended = false;  // by the server
    std::string received;
  };

  void OnInput(absl::string_view bytes);
  void OnFrame();
  bool MayWrite(uint32_t stream);
  // Sends the replies that are due, then `frame`.
  bool SendFrame(const std::string& frame, absl::Duration timeout = absl::Seconds(2));

  PeerSocket socket_;
  const std::string token_;
  Http2Frames frames_;
  std::string payload_;  // of the frame that arrives
  // Frames that answer the server's. They wait until this client sends another whole frame.
  std::string replies_;
  int64_t initial_window_ = 65535;
  int64_t window_ = 65535;  // of the connection
  uint32_t last_stream_ = 0;
  std::map<uint32_t, Stream> streams_;
};

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_HTTP2_PEER_H_
