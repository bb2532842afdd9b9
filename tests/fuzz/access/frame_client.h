// A client of framed RPC on a socket, plain or with TLS, for checks.
#ifndef COHORT_TESTS_FUZZ_ACCESS_FRAME_CLIENT_H_
#define COHORT_TESTS_FUZZ_ACCESS_FRAME_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/framed_rpc/frame.h"
#include "base/tls/stream_socket.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"

namespace cohort::coordinator::fuzz {

// Longer than anything here takes; only a hang reaches it.
inline constexpr absl::Duration kTimeout = absl::Seconds(10);

// A socket that is connected to a Unix socket and does not block. -1: it cannot connect.
int ConnectTo(const std::string& path);
// Waits until the socket has one of these events of poll(2). False: it has none within kTimeout.
bool AwaitEvents(int fd, short events);

// Blocks, for at most kTimeout. After a failure it sends and receives nothing.
class FrameClient {
 public:
  struct Reply {
    uint8_t code = 0;
    std::string text;  // of a reply that is not OK
    std::string body;
  };

  // `fd`: a connected socket that does not block. `tls`: a session whose handshake is done.
  explicit FrameClient(UniqueFd fd, std::shared_ptr<TlsSession> tls = nullptr);

  // Sends the preface, and reads the server's and the names of its methods. False: it fails.
  bool Greet();
  // The number of a method of the server. One that it does not have gets a number without method.
  uint16_t NumberOf(absl::string_view method) const;
  void Send(framed_rpc::Kind kind, uint16_t method, absl::string_view body);
  // Nothing: the server has closed, or it answers nothing in time.
  std::optional<Reply> Next();

 private:
  bool Receive();

  const UniqueFd fd_;
  const StreamSocket socket_;
  framed_rpc::FrameReader reader_{size_t{1} << 20};
  std::vector<std::string> methods_;
  uint32_t last_call_ = 0;
};

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_FRAME_CLIENT_H_
