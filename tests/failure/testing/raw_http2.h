// A peer that writes HTTP/2 frames by hand, as no gRPC library would.
#ifndef COHORT_TESTS_FAILURE_TESTING_RAW_HTTP2_H_
#define COHORT_TESTS_FAILURE_TESTING_RAW_HTTP2_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/tls/stream_socket.h"
#include "base/unique_fd.h"

namespace cohort::testing {

enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1;  // also: an acknowledgement
inline constexpr uint8_t kEndHeaders = 4;

// One frame; `payload` is at most 16 KiB.
std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload);
// A stream's header block that opens a gRPC call of `method` ("/cohort.v1.StoreService/Get").
std::string RequestBlock(absl::string_view method);
// A big-endian number, as payloads have it.
std::string Number32(uint32_t number);

// kOfEnvironment: TLS if this process has certificates (base/rpc/client_tls.h).
enum class Transport { kOfEnvironment, kPlain };

// One connection.
// Thread-compatible.
class RawHttp2 {
 public:
  // Connects to 127.0.0.1 and sends `greeting`; aborts when there is no such port.
  RawHttp2(int port, absl::string_view greeting, Transport transport = Transport::kOfEnvironment);

  // The preface and empty settings, which it also acknowledges.
  static std::string Greeting();

  // Sends all of `bytes`, and meanwhile reads and drops incoming bytes. False: the server has
  // closed the connection, or took nothing for `timeout`.
  bool Send(absl::string_view bytes, absl::Duration timeout = absl::Seconds(5));
  // Drops incoming bytes until the server closes the connection. False: it did not within
  // `timeout`.
  bool AwaitClosed(absl::Duration timeout);
  // Receives until last_bytes has `text`. False: it had not within `timeout`, or the server has
  // closed the connection.
  bool AwaitText(absl::string_view text, absl::Duration timeout);
  // Says that no more will be sent.
  void Finish();
  bool closed() const { return closed_; }
  // The last bytes that the server sent, at most 4 KiB.
  const std::string& last_bytes() const { return last_; }

 private:
  void ShakeHands();
  void Drain();

  UniqueFd fd_;
  StreamSocket stream_;
  bool closed_ = false;
  std::string last_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_RAW_HTTP2_H_
