#include "base/port/client_hello.h"

#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

constexpr uint32_t kMajorVersion = 3;  // of SSL 3.0 and all versions of TLS
constexpr uint32_t kClientHello = 1;
constexpr size_t kRecordHeaderBytes = 5;

}  // namespace

absl::Status CheckClientHello(absl::string_view first) {
  const auto byte = [first](size_t at) { return uint32_t{static_cast<uint8_t>(first[at])}; };
  const uint32_t record_bytes = byte(3) << 8 | byte(4);
  // A record that ends within the hello's header is legal, but no client sends one.
  const bool has_header = record_bytes >= kClientHelloHeaderBytes - kRecordHeaderBytes;
  if (first[0] != kTlsHandshake || byte(1) != kMajorVersion || !has_header ||
      byte(5) != kClientHello) {
    return absl::InvalidArgumentError("the TLS handshake does not begin with a ClientHello");
  }
  const uint32_t announced = byte(6) << 16 | byte(7) << 8 | byte(8);
  if (announced <= kMaxClientHelloBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the TLS handshake announces a ClientHello of ", announced,
                   " bytes, and the limit is ", kMaxClientHelloBytes));
}

}  // namespace cohort
